#include "tracedb/import/jobs.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <utility>

#include "tracedb/import/merge.h"
#include "tracedb/import/registry.h"
#include "tracedb/import/spool/spool_import.h"
#include "tracedb/spool/spool.h"
#include "tracedb/store/rows.h"

namespace ringscope {
namespace {

namespace fs = std::filesystem;

constexpr size_t kNamedFiles = 20;  // of those that are no traces, in one sentence

bool ends_with(const std::string& text, std::string_view tail) {
  return text.size() > tail.size() && text.compare(text.size() - tail.size(), tail.size(), tail) == 0;
}

// Errors begin with the path that they are about.
std::string without_path(const std::string& message, const std::string& path) {
  return message.starts_with(path + ": ") ? message.substr(path.size() + 2) : message;
}

std::string head_of(const fs::path& file, size_t bytes = 256) {
  std::string head(bytes, '\0');
  std::ifstream in(file, std::ios::binary);
  in.read(head.data(), std::streamsize(bytes));
  head.resize(size_t(in.gcount()));
  return head;
}

bool holds(const fs::path& file, std::string_view text) { return head_of(file).find(text) != std::string::npos; }

// What ringscope itself leaves beside a trace: a part of it, a dump of attention, a report of an earlier call.
bool is_companion(const fs::path& path) {
  const std::string text = path.string();
  for (const char* tail : {"-wal", "-shm", "-journal"})
    if (ends_with(text, tail) && guess_importer(text.substr(0, text.size() - std::strlen(tail)))) return true;
  if (ends_with(text, ".tmp") && is_spool(text.substr(0, text.size() - 4) + ".spool")) return true;
  std::error_code error;
  if (fs::is_directory(path, error)) return holds(path / "layout.json", "ringscope-dump");
  return fs::is_regular_file(path, error) && holds(path, "\"schema\": \"ringscope.");
}

struct Candidate {
  std::string path;
  const Importer* importer = nullptr;
  SourceIdentity identity;
};

// Nobody unpacks these here yet: the sentence says so.
bool is_archive(const fs::path& file) {
  using namespace std::string_view_literals;
  for (const std::string_view magic : {"\x1f\x8b"sv,
                                       "\xfd"
                                       "7zXZ\0"sv,
                                       "\x28\xb5\x2f\xfd"sv, "PK\x03\x04"sv})
    if (head_of(file).starts_with(magic)) return true;
  return head_of(file, 512).find("ustar") == 257;
}

// The files and folders under the paths, each once, whatever names lead to it. Links are followed to files, and to
// folders only where a person named them: a link in a folder may lead anywhere.
class Search {
 public:
  void add(const fs::path& path, bool named) {
    std::error_code error;
    const fs::path real = fs::canonical(path, error);
    if (error) return leave(path, named ? "cannot read: " + error.message() : "a link to nothing", named);
    if (seen_.contains(real.string())) return;
    const Importer* importer = guess_importer(path.string());
    const fs::file_type type = fs::status(path, error).type();
    if (!importer && !named && type == fs::file_type::directory && fs::is_symlink(path)) return links_.push_back(path);
    seen_.insert(real.string());
    if (importer) return candidates_.push_back({path.string(), importer, {}});
    if (type == fs::file_type::directory) return add_folder(path);
    if (type != fs::file_type::regular) return leave(path, "not a file or a folder", false);
    leave(path,
          fs::file_size(path, error) == 0 ? "the file is empty"
          : is_archive(path)              ? "format not recognised: an archive, unpack it first"
                                          : "format not recognised",
          false);
  }

  // What a link leads to may have been found on another way by the end.
  void finish() {
    std::error_code error;
    for (const fs::path& link : links_)
      if (!seen_.contains(fs::canonical(link, error).string()))
        leave(link, "a link to another folder: name it to have it searched", false);
  }

  std::vector<Candidate> take_candidates() { return std::move(candidates_); }
  std::vector<Unused> take_unused() { return std::move(unused_); }

 private:
  static constexpr size_t kMostFiles = 100'000;  // a folder of more is no folder of traces

  void leave(const fs::path& path, std::string why, bool recognised) {
    unused_.push_back({path.string(), std::move(why), recognised});
  }

  void add_folder(const fs::path& dir) {
    std::error_code error;
    std::vector<fs::path> entries;
    fs::directory_iterator it(dir, error), end;
    for (; !error && it != end; it.increment(error)) entries.push_back(it->path());
    if (error) leave(dir, "cannot read: " + error.message(), true);
    std::sort(entries.begin(), entries.end());
    for (const fs::path& entry : entries) {
      if (seen_.size() >= kMostFiles) {
        if (!std::exchange(full_, true)) leave(dir, "too many files: name the folders that hold traces", true);
        return;
      }
      if (!is_companion(entry)) add(entry, false);
    }
  }

  std::set<std::string> seen_;
  std::vector<fs::path> links_;  // to folders
  std::vector<Candidate> candidates_;
  std::vector<Unused> unused_;
  bool full_ = false;
};

bool meet(const auto& a, const auto& b) {
  return std::any_of(a.begin(), a.end(), [&](const auto& item) { return b.contains(item); });
}

bool other_ranks(const SourceIdentity& a, const SourceIdentity& b) {
  return !a.ranks.empty() && !b.ranks.empty() && !meet(a.ranks, b.ranks);
}

// Leaves one form of every recording: the one that holds more, a database before a spool.
std::vector<Candidate> without_doubles(std::vector<Candidate> all, std::vector<std::string>& doubles) {
  const auto is_database = [](const Candidate& c) { return std::strcmp(c.importer->format(), "ringscope.db") == 0; };
  std::stable_sort(all.begin(), all.end(), [&](const Candidate& a, const Candidate& b) {
    if (a.identity.rows != b.identity.rows) return a.identity.rows > b.identity.rows;
    return is_database(a) && !is_database(b);
  });
  std::vector<Candidate> kept;
  for (Candidate& c : all) {
    const bool known = std::any_of(kept.begin(), kept.end(), [&](const Candidate& other) {
      return meet(c.identity.processes, other.identity.processes) && !other_ranks(c.identity, other.identity);
    });
    if (known) doubles.push_back(c.path);
    else kept.push_back(std::move(c));
  }
  return kept;
}

// A rank is in one group of each axis: two that share a rank are the same group, or the sources are of two jobs.
bool groups_agree(const SourceIdentity& a, const SourceIdentity& b) {
  for (const auto& [axis, members] : a.groups)
    for (const auto& [other_axis, others] : b.groups)
      if (axis == other_axis && axis != Axis::kUnknown && members != others &&
          std::any_of(members.begin(), members.end(),
                      [&](int rank) { return std::find(others.begin(), others.end(), rank) != others.end(); }))
        return false;
  return true;
}

bool one_job(const SourceIdentity& a, const SourceIdentity& b) {
  if (!other_ranks(a, b)) return false;
  return meet(a.processes, b.processes) || (a.world == b.world && a.sizes == b.sizes && groups_agree(a, b));
}

// Attempts of one job have the same ranks: a source goes to the attempt that began nearest to it.
std::vector<Job> group_by_job(std::vector<Candidate> sources) {
  std::stable_sort(sources.begin(), sources.end(),
                   [](const Candidate& a, const Candidate& b) { return a.identity.start_ns < b.identity.start_ns; });
  std::vector<std::vector<const Candidate*>> groups;
  for (const Candidate& source : sources) {
    std::vector<const Candidate*>* best = nullptr;
    const auto distance = [&](const std::vector<const Candidate*>& group) {
      return source.identity.start_ns - group.back()->identity.start_ns;
    };
    for (auto& group : groups) {
      const bool fits = std::all_of(group.begin(), group.end(), [&](const Candidate* member) {
        return one_job(member->identity, source.identity);
      });
      if (fits && (!best || distance(group) < distance(*best))) best = &group;
    }
    if (best) best->push_back(&source);
    else groups.push_back({&source});
  }
  std::vector<Job> jobs;
  for (const auto& group : groups) {
    Job& job = jobs.emplace_back();
    for (const Candidate* source : group) job.sources.push_back(source->path);
  }
  return jobs;
}

std::string known_formats() {
  std::string known;
  for (const Importer* importer : importers())
    known += std::string(known.empty() ? "; known: " : "; ") + importer->description();
  return known;
}

std::string listed(const std::vector<const Unused*>& files) {
  std::string text;
  for (size_t i = 0; i < files.size() && i < kNamedFiles; ++i) text += (i ? ", " : "") + files[i]->path;
  if (files.size() > kNamedFiles) text += " and " + std::to_string(files.size() - kNamedFiles) + " more";
  return text;
}

// Why there is no job at all: what cannot be read says more than what is something else.
Error nothing_found(const std::vector<std::string>& paths, const std::vector<Unused>& unused) {
  for (const Unused& file : unused)
    if (file.recognised) return {ErrorKind::kData, file.path + ": " + file.why};
  if (unused.empty())
    return {ErrorKind::kData, paths[0] + ": format not recognised: the folder is empty" + known_formats()};
  const std::string parent = fs::path(unused[0].path).parent_path().string();
  if (paths.size() == 1 && unused[0].path == paths[0])
    return {ErrorKind::kData, paths[0] + ": " + unused[0].why +
                                  (is_spool(parent) ? ": a part of the spool " + parent + ", name the folder" : "") +
                                  known_formats()};
  std::vector<const Unused*> files;
  for (const Unused& file : unused) files.push_back(&file);
  return {ErrorKind::kData, paths[0] + ": format not recognised: no trace among " + listed(files) + known_formats()};
}

void add_leftovers(const Discovery& found, TraceView& view) {
  std::vector<const Unused*> unrecognised;
  for (const Unused& file : found.unused) {
    if (!file.recognised) unrecognised.push_back(&file);
    else view.import_stats.push_back({"input.unreadable", "error", 1, file.path + ": " + file.why});
  }
  if (!unrecognised.empty())
    view.import_stats.push_back(
        {"input.unrecognised", "error", int64_t(unrecognised.size()), "not recognised: " + listed(unrecognised)});
  for (const std::string& path : found.doubles)
    view.import_stats.push_back({"input.same_recording", "info", 1, path + " holds nothing more: it was left out"});
}

Result<TraceView> load_sources(const Job& job) {
  std::vector<TraceView> views;
  for (const std::string& path : job.sources) {
    auto view = guess_importer(path)->load(path);
    if (!view) return view;
    views.push_back(std::move(*view));
  }
  return merge_views(std::move(views));
}

}  // namespace

Result<Discovery> discover(const std::vector<std::string>& paths) {
  Search search;
  for (const std::string& path : paths) {
    if (auto ok = check_readable(path); !ok) return tl::unexpected(ok.error());
    search.add(path, true);
  }
  search.finish();
  Discovery found;
  found.unused = search.take_unused();
  std::vector<Candidate> candidates = search.take_candidates(), readable;
  if (candidates.size() == 1) {  // alone: nothing to compare it with
    found.jobs.push_back({{candidates[0].path}});
    return found;
  }
  for (Candidate& candidate : candidates) {
    auto identity = candidate.importer->identify(candidate.path);
    if (!identity) {
      found.unused.push_back({candidate.path, without_path(identity.error().message, candidate.path), true});
      continue;
    }
    candidate.identity = std::move(*identity);
    readable.push_back(std::move(candidate));
  }
  if (readable.empty()) return tl::unexpected(nothing_found(paths, found.unused));
  found.jobs = group_by_job(without_doubles(std::move(readable), found.doubles));
  return found;
}

Status import_job(const Job& job, Store& store) {
  if (job.sources.size() == 1 && is_spool(job.sources[0])) {  // its threads and clocks are no rows of a view
    if (auto source = import_spool(job.sources[0], store); !source) return tl::unexpected(source.error());
  } else {
    auto view = load_sources(job);
    if (!view) return tl::unexpected(view.error());
    if (auto ok = write_view(*view, store); !ok) return ok;
  }
  return store.finish();
}

Result<TraceView> load_job(const Discovery& found, size_t job) {
  auto view = load_sources(found.jobs[job]);
  if (view) add_leftovers(found, *view);
  return view;
}

}  // namespace ringscope
