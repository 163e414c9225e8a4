// What follows from the rows once they are all there: order, matches, ring steps, indexes.
#include <sqlite3.h>

#include <cstdint>
#include <utility>

#include "tracedb/store/schema.h"
#include "tracedb/store/statement.h"
#include "tracedb/store/store.h"

namespace ringscope {
namespace {

// A first import writes rows in order; a later one (more of the same spool, another rank) may not.
Status restore_order(Store& store, const std::string& table) {
  bool in_order = true;
  {
    Statement s(store.handle(), "SELECT id, rank, issue FROM " + table + " ORDER BY id");
    std::pair<int64_t, int64_t> last{INT64_MIN, INT64_MIN};
    for (int64_t id = 1; in_order && s.step(); ++id) {
      const std::pair<int64_t, int64_t> here{s.integer(1), s.integer(2)};
      in_order = s.integer(0) == id && last <= here;
      last = here;
    }
    if (auto ok = s.status(store.path()); !ok) return ok;
  }
  if (in_order) return {};
  return store.exec("CREATE TEMP TABLE in_order AS SELECT * FROM " + table +
                    " ORDER BY rank, issue, id;"
                    "UPDATE in_order SET id = rowid;"
                    "DELETE FROM " +
                    table + ";INSERT INTO " + table +
                    " SELECT * FROM in_order ORDER BY rowid;"
                    "DROP TABLE in_order;");
}

// The other side of a transfer: same communicator and position, direction reversed, ends swapped.
constexpr const char* kMatch = R"sql(
UPDATE p2p SET match_op = (
  SELECT q.op_id FROM p2p q
  JOIN comm_rank mine ON mine.comm = p2p.comm AND mine.rank = p2p.rank
  JOIN comm_rank theirs ON theirs.comm = p2p.comm AND theirs.rank = q.rank
  WHERE q.comm = p2p.comm AND q.direction = 1 - p2p.direction AND q.seq = p2p.seq
    AND theirs.group_rank = p2p.peer AND q.peer = mine.group_rank)
WHERE match_op IS NULL;
)sql";

constexpr const char* kSyncFrom = R"sql(
UPDATE sync SET from_stream = (SELECT r.stream FROM sync r WHERE r.key = sync.key AND r.kind = 0)
WHERE kind = 1 AND key <> 0 AND from_stream IS NULL;
)sql";

// Kernels of a rank share one compute stream: their times do not overlap, so covered time adds up.
constexpr const char* kRingSteps = R"sql(
DELETE FROM ring_step;
WITH kernel AS (
  SELECT rank, step, microbatch, layer, pass, ring_step,
         min(start_ns) AS first_ns, max(end_ns) AS last_ns, sum(end_ns - start_ns) AS busy_ns
  FROM op WHERE kind = 0 AND name NOT IN (SELECT id FROM string WHERE value LIKE 'statistics.%')
    AND ring_step IS NOT NULL AND end_ns IS NOT NULL AND start_ns IS NOT NULL
  GROUP BY 1, 2, 3, 4, 5, 6),
transfer AS (
  SELECT o.rank, o.step, o.microbatch, o.layer, o.pass, o.ring_step,
         min(o.start_ns) AS first_ns, max(o.end_ns) AS last_ns
  FROM op o WHERE o.kind = 2 AND o.ring_step IS NOT NULL AND o.end_ns IS NOT NULL AND o.start_ns IS NOT NULL
  GROUP BY 1, 2, 3, 4, 5, 6),
place AS (
  SELECT rank, step, microbatch, layer, pass, ring_step FROM kernel
  UNION SELECT rank, step, microbatch, layer, pass, ring_step FROM transfer),
joined AS (
  SELECT p.*, k.first_ns AS k0, k.last_ns AS k1, k.busy_ns, t.first_ns AS t0, t.last_ns AS t1
  FROM place p
  LEFT JOIN kernel k ON k.rank = p.rank AND k.step IS p.step AND k.microbatch IS p.microbatch
    AND k.layer IS p.layer AND k.pass IS p.pass AND k.ring_step = p.ring_step
  LEFT JOIN transfer t ON t.rank = p.rank AND t.step IS p.step AND t.microbatch IS p.microbatch
    AND t.layer IS p.layer AND t.pass IS p.pass AND t.ring_step = p.ring_step)
INSERT INTO ring_step(rank, step, microbatch, layer, pass, ring_step, expected_steps, attention_ns, transfer_ns,
                      exposed_ns, blocking_ns)
SELECT j.rank, j.step, j.microbatch, j.layer, j.pass, j.ring_step,
       (SELECT max(r.expected_steps) FROM ring_plan r WHERE r.rank = j.rank AND r.step IS j.step
          AND r.microbatch IS j.microbatch AND r.layer IS j.layer AND r.pass IS j.pass),
       j.busy_ns, j.t1 - j.t0,
       j.t1 - j.t0 - (SELECT coalesce(sum(min(j.t1, k.end_ns) - max(j.t0, k.start_ns)), 0) FROM op k
          WHERE k.step IS j.step AND k.rank = j.rank AND k.kind = 0 AND k.start_ns < j.t1 AND k.end_ns > j.t0),
       max(0, lead(j.k0) OVER pass_order - j.k1)
FROM joined j
WINDOW pass_order AS (PARTITION BY j.rank, j.step, j.microbatch, j.layer, j.pass ORDER BY j.ring_step)
ORDER BY j.rank, j.step, j.microbatch, j.layer, j.pass, j.ring_step;
)sql";

}  // namespace

Status Store::finish() {
  if (auto ok = begin(); !ok) return ok;
  for (const char* table : {"op", "coll", "p2p", "access", "sync", "buffer", "ring_plan", "softmax_row", "softmax_stat",
                            "tensor_stat", "position_run", "memory_sample", "train_step"}) {
    if (auto ok = restore_order(*this, table); !ok) {
      rollback();
      return ok;
    }
  }
  for (const char* sql :
       {kSchema_indexes, "CREATE INDEX IF NOT EXISTS temp_ring_plan ON ring_plan (rank, step, layer);", kMatch,
        kSyncFrom, kRingSteps, "DROP INDEX temp_ring_plan;", "PRAGMA analysis_limit=1000; ANALYZE;"}) {
    if (auto ok = exec(sql); !ok) {
      rollback();
      return ok;
    }
  }
  if (auto ok = commit(); !ok) {
    rollback();
    return ok;
  }
  // A WAL database opens neither after a rename without its WAL nor in a read-only folder.
  return exec("PRAGMA journal_mode=DELETE; PRAGMA locking_mode=NORMAL;");
}

}  // namespace ringscope
