#include "tracedb/import/registry.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "tracedb/import/jobs.h"
#include "tracedb/import/spool/spool_import.h"
#include "tracedb/spool/spool.h"

namespace ringscope {
namespace {

class SpoolImporter : public Importer {
 public:
  const char* format() const override { return "ringscope.spool"; }
  const char* description() const override { return "spool folder of a recorded run (DB.spool)"; }
  bool recognises(const std::string& path) const override { return is_spool(path); }
  Result<SourceIdentity> identify(const std::string& path) const override { return spool_identity(path); }
  Result<SourceRow> import(const std::string& path, Store& store) const override { return import_spool(path, store); }
};

// Copies the rows of another database of ours. Rows of one table keep their order; finish() sorts them.
class DatabaseImporter : public Importer {
 public:
  const char* format() const override { return "ringscope.db"; }
  const char* description() const override { return "trace database written by ringscope"; }
  bool recognises(const std::string& path) const override {
    char head[72] = {};
    std::ifstream file(path, std::ios::binary);
    if (!file.read(head, sizeof head)) return false;
    const unsigned char id[] = {kApplicationId >> 24 & 255, kApplicationId >> 16 & 255, kApplicationId >> 8 & 255,
                                kApplicationId & 255};
    return std::memcmp(head, "SQLite format 3", 16) == 0 && std::memcmp(head + 68, id, 4) == 0;
  }
  Result<SourceIdentity> identify(const std::string& path) const override { return database_identity(path); }
  Result<SourceRow> import(const std::string& path, Store& store) const override {
    if (auto checked = Store::open(path); !checked) return tl::unexpected(checked.error());
    const Cell file[] = {path};
    if (auto ok = store.run("ATTACH ? AS other", file); !ok) return tl::unexpected(ok.error());
    auto result = copy(path, store);
    if (!result) store.rollback();
    (void)store.exec("DETACH other");
    return result;
  }

 private:
  static Result<SourceRow> copy(const std::string& path, Store& store) {
    std::string sql = "BEGIN;";
    // Texts are numbered per database: map through the value.
    sql +=
        "INSERT INTO string(value) SELECT value FROM other.string WHERE value NOT IN (SELECT value FROM string);"
        "CREATE TEMP TABLE text_map AS SELECT o.id AS old, s.id AS new FROM other.string o JOIN string s "
        "ON s.value = o.value; CREATE UNIQUE INDEX temp.text_by_old ON text_map(old);";
    for (const char* table :
         {"meta", "rank", "thread", "comm", "comm_rank", "probe", "lost", "drain_state", "import_stats"})
      sql += std::string("INSERT OR IGNORE INTO ") + table + " SELECT * FROM other." + table + ";";
    sql += "INSERT INTO clock_sync SELECT * FROM other.clock_sync;";
    const std::string where = ",step,layer,microbatch,ring_step,pass";
    auto add = [&](const char* table, const std::string& columns, const std::string& values = "") {
      sql += std::string("INSERT INTO ") + table + "(" + columns + ") SELECT " + (values.empty() ? columns : values) +
             " FROM other." + table + " ORDER BY id;";
    };
    const std::string name = "coalesce((SELECT new FROM text_map WHERE old = name), 0)";
    add("rank_exit", "rank,status,time_ns,reason" + where);
    add("stream", "rank,stream,name");
    const std::string buffer = "rank,issue,buffer,base,bytes,category,alloc_ns,free_ns,free_stream" + where;
    add("buffer", buffer + ",name", buffer + "," + name);
    const std::string op = "rank,issue,op_id,stream,kind,state,group_op,enqueue_ns,start_ns,end_ns,bytes_sent" + where;
    add("op", op + ",name", op + "," + name);
    add("coll", "rank,issue,op_id,comm,seq,func,count,dtype,redop,root");
    add("p2p", "rank,issue,op_id,comm,peer,direction,seq,bytes,count,dtype,match_op");
    add("access", "rank,issue,op_id,buffer,begin_byte,end_byte,mode");
    const std::string sync = "rank,issue,kind,stream,from_stream,event,key,time_ns" + where;
    add("sync", sync + ",name", sync + "," + name);
    add("ring_plan", "rank,issue,comm,expected_steps,run_steps" + where);
    add("softmax_row",
        "rank,issue,position,head,kv_owner,sample,method,parts,m_own,lse_own,m_used,sum_used,lse_result" + where);
    add("softmax_stat", "rank,issue,rows,empty,bad,method,parts,lse_min,lse_max,lse_mean" + where);
    const std::string tensor = "rank,issue,role,part,count,checksum,norm,bad" + where;
    add("tensor_stat", tensor + ",name", tensor + "," + name);
    add("position_run", "rank,issue,role,token_start,count,pos_start,stride,document,sample,rope_base" + where);
    add("memory_sample", "rank,issue,category,bytes,peak_bytes,time_ns" + where);
    add("train_step", "rank,issue,loss_sum,valid_tokens,divisor,loss,tokens,seconds,grad_norm,lr,peak_bytes" + where);
    sql += "DROP TABLE text_map; COMMIT;";
    if (auto ok = store.exec(sql); !ok) return tl::unexpected(ok.error());
    return add_source(path, store);
  }

  static Result<SourceRow> add_source(const std::string& path, Store& store) {
    auto sums = store.query(
        "SELECT coalesce(sum(rows), 0), coalesce(sum(lost), 0), count(DISTINCT rank), max(rank) "
        "FROM other.source");
    if (!sums) return tl::unexpected(sums.error());
    const auto& row = sums->rows.at(0);
    const bool one_rank = std::get<int64_t>(row[2]) == 1;
    SourceRow source{path, "ringscope.db", one_rank ? int32_t(std::get<int64_t>(row[3])) : -1,
                     std::get<int64_t>(row[0]), std::get<int64_t>(row[1])};
    const Cell values[] = {source.path, source.format, int64_t(source.rank), source.rows, source.lost};
    if (auto ok = store.run("INSERT INTO source(path, format, rank, rows, lost) VALUES(?, ?, ?, ?, ?)", values); !ok)
      return tl::unexpected(ok.error());
    return source;
  }
};

const SpoolImporter kSpool;
const DatabaseImporter kDatabase;

}  // namespace

const std::vector<const Importer*>& importers() {
  static const std::vector<const Importer*> all = {&kSpool, &kDatabase};
  return all;
}

const Importer* guess_importer(const std::string& path) {
  std::error_code error;
  const auto type = std::filesystem::status(path, error).type();  // opening a pipe would wait for its writer
  if (type != std::filesystem::file_type::regular && type != std::filesystem::file_type::directory) return nullptr;
  for (const Importer* importer : importers())
    if (importer->recognises(path)) return importer;
  return nullptr;
}

Status check_readable(const std::string& path) {
  std::error_code error;
  const bool exists = std::filesystem::exists(path, error);
  if (error) return data_error(path + ": cannot read: " + error.message());
  if (!exists) return data_error(path + ": no such file or folder");
  if (access(path.c_str(), R_OK) != 0) return data_error(path + ": cannot read: " + std::strerror(errno));
  return {};
}

Result<TraceView> load_paths(const std::vector<std::string>& paths) {
  for (const std::string& path : paths)
    if (auto recovered = recover_leftover(path); !recovered) return tl::unexpected(recovered.error());
  auto found = discover(paths);
  if (!found) return tl::unexpected(found.error());
  if (found->jobs.size() > 1)
    return usage_error(found->jobs[0].sources[0] + " and " + found->jobs[1].sources[0] + " are two jobs");
  return load_job(*found, 0);
}

}  // namespace ringscope
