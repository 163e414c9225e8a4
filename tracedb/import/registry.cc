#include "tracedb/import/registry.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "tracedb/import/spool/spool_import.h"
#include "tracedb/spool/spool.h"

namespace ringscope {
namespace {

class SpoolImporter : public Importer {
 public:
  const char* format() const override { return "ringscope.spool"; }
  const char* description() const override { return "spool folder of a recorded run (DB.spool)"; }
  bool recognises(const std::string& path) const override { return is_spool(path); }
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

Error unknown_format(const std::string& path) {
  std::string known;
  for (const Importer* importer : importers())
    known += std::string(known.empty() ? "" : "; ") + importer->description();
  std::error_code error;
  const auto type = std::filesystem::status(path, error).type();
  const bool empty = type == std::filesystem::file_type::regular && std::filesystem::file_size(path, error) == 0;
  return {ErrorKind::kData, path + (empty ? ": the file is empty" : ": format not recognised") + "; known: " + known};
}

// A path, or what a folder of sources holds, in name order.
Result<std::vector<std::string>> expand(const std::string& path) {
  if (auto ok = check_readable(path); !ok) return tl::unexpected(ok.error());
  std::error_code error;
  if (guess_importer(path)) return std::vector<std::string>{path};
  std::vector<std::string> found;
  if (std::filesystem::is_directory(path, error)) {
    std::filesystem::directory_iterator it(path, error), end;
    for (; !error && it != end; it.increment(error))
      if (guess_importer(it->path().string())) found.push_back(it->path().string());
  }
  if (found.empty()) return tl::unexpected(unknown_format(path));
  std::sort(found.begin(), found.end());
  return found;
}

// Global ranks that a source of ours holds: sources of one job share none.
std::set<int64_t> ranks_in(const std::string& path) {
  std::set<int64_t> ranks;
  if (kDatabase.recognises(path)) {
    auto store = Store::open(path);
    auto rows = store ? store->query("SELECT rank FROM rank") : Result<QueryResult>(QueryResult());
    if (rows)
      for (const auto& row : rows->rows) ranks.insert(std::get<int64_t>(row[0]));
  } else if (auto spool = read_spool(path)) {
    for (const RingReader& ring : spool->rings)
      if (ring.rank() >= 0) ranks.insert(ring.rank());
  }
  return ranks;
}

// One source alone is not read for it.
Status check_one_job(const std::vector<std::string>& files) {
  if (files.size() < 2) return {};
  std::map<int64_t, std::string> holder;
  for (const std::string& file : files)
    for (const int64_t rank : ranks_in(file)) {
      const auto [other, fresh] = holder.try_emplace(rank, file);
      if (!fresh)
        return usage_error(other->second + " and " + file + " both hold rank " + std::to_string(rank) +
                           ": they are two runs; diagnose them one by one");
    }
  return {};
}

}  // namespace

const std::vector<const Importer*>& importers() {
  static const std::vector<const Importer*> all = {&kSpool, &kDatabase};
  return all;
}

const Importer* guess_importer(const std::string& path) {
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

Result<std::vector<SourceRow>> import_paths(const std::vector<std::string>& paths, Store& store) {
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    auto found = expand(path);
    if (!found) return tl::unexpected(found.error());
    files.insert(files.end(), found->begin(), found->end());
  }
  if (auto ok = check_one_job(files); !ok) return tl::unexpected(ok.error());
  std::vector<SourceRow> sources;
  for (const std::string& file : files) {
    auto source = guess_importer(file)->import(file, store);
    if (!source) return tl::unexpected(source.error());
    sources.push_back(std::move(*source));
  }
  if (auto ok = store.finish(); !ok) return tl::unexpected(ok.error());
  return sources;
}

Result<TraceView> load_paths(const std::vector<std::string>& paths) {
  for (const std::string& path : paths)
    if (auto recovered = recover_leftover(path); !recovered) return tl::unexpected(recovered.error());
  if (paths.size() == 1 && kDatabase.recognises(paths[0])) {
    auto store = Store::open(paths[0]);
    if (!store) return tl::unexpected(store.error());
    auto view = load_view(*store);
    if (view && view->sources.size() == 1) view->sources[0].path = paths[0];
    return view;
  }
  auto store = Store::create(":memory:");
  if (!store) return tl::unexpected(store.error());
  if (auto ok = import_paths(paths, *store); !ok) return tl::unexpected(ok.error());
  return load_view(*store);
}

}  // namespace ringscope
