#include "runtime/fault/mutation.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "runtime/fault/words.h"
#include "tracedb/base/nearest.h"

namespace ringscope {

const char* name(SiteKind kind) {
  constexpr const char* kNames[] = {"call", "kernel", "record", "wait", "upload", "create"};
  return kNames[size_t(kind)];
}

namespace {

using Op = MutationOp;
using K = SiteKind;

// The name of a site against a pattern in which * stands for any run of characters: greedy, with one way back.
bool like(std::string_view text, std::string_view pattern) {
  size_t t = 0, p = 0, star = std::string_view::npos, resume = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') star = p++, resume = t;
    else if (p < pattern.size() && pattern[p] == text[t]) ++p, ++t;
    else if (star != std::string_view::npos) p = star + 1, t = ++resume;
    else return false;
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

Result<int> number(std::string_view key, std::string_view value) {
  int out = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), out);
  if (error != std::errc() || end != value.data() + value.size() || out < 0)
    return usage_error(fmt::format("key {}={} is not a number: use 0 or more", key, value));
  return out;
}

// "3", "1-3"; with `open`, "2-" as well (until the end: -1).
Result<std::pair<int, int>> range(std::string_view key, std::string_view value, bool open) {
  const size_t dash = value.find('-');
  const auto from = number(key, value.substr(0, dash));
  if (!from) return tl::unexpected(from.error());
  if (dash == std::string_view::npos) return std::pair(*from, *from);
  if (open && dash + 1 == value.size()) return std::pair(*from, -1);
  const auto to = number(key, value.substr(dash + 1));
  if (!to) return tl::unexpected(to.error());
  if (*to < *from) return usage_error(fmt::format("key {}={} ends before it begins", key, value));
  return std::pair(*from, *to);
}

constexpr std::pair<std::string_view, Pass> kPasses[] = {
    {"forward", Pass::kForward}, {"backward", Pass::kBackward}, {"optimizer", Pass::kOptimizer}, {"none", Pass::kNone}};
constexpr std::string_view kKeys[] = {"rank", "step", "microbatch", "layer", "pass", "ring_step", "kind", "n"};

Status set_key(SiteFilter& site, std::string_view key, std::string_view value) {
  if (key == "rank") {
    for (std::string_view part : split_words(value, '+')) {
      const auto ranks = range(key, part, false);
      if (!ranks) return tl::unexpected(ranks.error());
      site.ranks.push_back(*ranks);
    }
    return {};
  }
  if (key == "step") {
    const auto steps = range(key, value, true);
    if (!steps) return tl::unexpected(steps.error());
    std::tie(site.step_from, site.step_to) = *steps;
    return {};
  }
  if (key == "pass") {
    for (const auto& [word, pass] : kPasses)
      if (word == value) site.pass = pass;
    return site.pass ? Status()
                     : usage_error(fmt::format("key pass={}: use forward, backward, optimizer or none", value));
  }
  if (key == "kind") {
    for (int kind = 0; kind <= int(K::kCreate); ++kind)
      if (name(K(kind)) == value) site.kind = K(kind);
    return site.kind ? Status()
                     : usage_error(fmt::format("key kind={}: use call, kernel, record, wait, upload or create", value));
  }
  const auto n = number(key, value);
  if (!n) return tl::unexpected(n.error());
  (key == "microbatch" ? site.microbatch : key == "layer" ? site.layer : key == "n" ? site.n : site.ring_step) = *n;
  return {};
}

Result<SiteFilter> parse_site(std::string_view text) {
  SiteFilter site;
  const size_t colon = std::min(text.find(':'), text.size());
  site.name = std::string(text.substr(0, colon));
  if (site.name.empty()) return usage_error("a mutation needs a site: OP@NAME, where NAME may be a pattern with *");
  if (colon == text.size()) return site;
  std::vector<std::string_view> seen;
  for (std::string_view pair : split_words(text.substr(colon + 1), ',')) {
    const size_t equals = std::min(pair.find('='), pair.size());
    const std::string_view key = pair.substr(0, equals);
    if (std::find(std::begin(kKeys), std::end(kKeys), key) == std::end(kKeys)) {
      const std::vector<std::string_view> known(std::begin(kKeys), std::end(kKeys));
      return usage_error(
          fmt::format("a site has no key '{}': use {}{}", key, fmt::join(known, ", "), did_you_mean(key, known)));
    }
    if (std::find(seen.begin(), seen.end(), key) != seen.end())
      return usage_error(fmt::format("key '{}' is written twice", key));
    seen.push_back(key);
    if (auto ok = set_key(site, key, equals == pair.size() ? "" : pair.substr(equals + 1)); !ok)
      return tl::unexpected(ok.error());
  }
  return site;
}

Result<std::pair<MutationOp, std::string>> parse_op(std::string_view text) {
  const size_t equals = std::min(text.find('='), text.size());
  const std::string_view word = text.substr(0, equals);
  const auto rows = mutation_ops();
  const auto row = std::find_if(rows.begin(), rows.end(), [&](const MutationOpRow& r) { return r.name == word; });
  if (row == rows.end()) {
    std::vector<std::string_view> known;
    for (const MutationOpRow& r : rows) known.push_back(r.name);
    return usage_error(
        fmt::format("unknown operation '{}'{}; one of {}", word, did_you_mean(word, known), fmt::join(known, ", ")));
  }
  const std::string value(equals == text.size() ? "" : text.substr(equals + 1));
  if (row->value.empty() && equals != text.size()) return usage_error(fmt::format("{} takes no value", word));
  if (!row->value.empty() && value.empty())
    return usage_error(fmt::format("{} needs a value: {}={}", word, word, row->value));
  return std::pair(row->op, value);
}

// A value that no site could make sense of.
Status check_value(MutationOp op, const std::string& value) {
  const auto one_of = [&](std::initializer_list<std::string_view> words) -> Status {
    if (std::find(words.begin(), words.end(), value) != words.end()) return {};
    return usage_error(fmt::format("'{}' is unknown: use {}", value, fmt::join(words, ", ")));
  };
  const auto real = [&](bool positive) -> Status {
    double number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error != std::errc() || end != value.data() + value.size() || !(number - number == 0) ||
        (positive && number <= 0))
      return usage_error(fmt::format("'{}' is not a {}number", value, positive ? "positive " : ""));
    return {};
  };
  const auto whole = [&](bool negative) -> Status {
    int number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error == std::errc() && end == value.data() + value.size() && (negative || number >= 0)) return {};
    return usage_error(fmt::format("'{}' is not a whole number{}", value, negative ? "" : ", 0 or more"));
  };
  switch (op) {
    case Op::kFunc:
      return one_of({"all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "send", "recv"});
    case Op::kCount: return value == "half" ? Status() : whole(false);
    case Op::kDtype: return one_of({"fp32", "fp64", "int32", "int64"});
    case Op::kRedop: return one_of({"sum", "max", "min", "avg"});
    case Op::kRoot:
    case Op::kPeer: return whole(false);
    case Op::kOffset: return whole(true);
    case Op::kComm: return one_of({"tp", "cp", "dp"});
    case Op::kStream: return one_of({"compute", "cp", "dp"});
    case Op::kLayout: return one_of({"contiguous", "zigzag"});
    case Op::kScale:
    case Op::kShift: return real(false);
    case Op::kPause: return real(true);
    default: return {};
  }
}

const MutationOpRow& row_of(MutationOp op) { return mutation_ops()[size_t(op)]; }

}  // namespace

std::span<const MutationOpRow> mutation_ops() {
  static const std::vector<K> kAny = {K::kCall, K::kKernel, K::kRecord, K::kWait, K::kUpload, K::kCreate};
  static const std::vector<MutationOpRow> kRows = {
      {Op::kDrop, "drop", "", {K::kCall, K::kKernel, K::kRecord, K::kWait}},
      {Op::kTwice, "twice", "", {K::kCall, K::kKernel}},
      {Op::kSwap, "swap", "", {K::kCall, K::kCreate}},
      {Op::kSplit, "split", "", {K::kCall}},
      {Op::kFunc, "func", "all_reduce|all_gather|reduce_scatter|broadcast|all_to_all|send|recv", {K::kCall}},
      {Op::kCount, "count", "N|half", {K::kCall}},
      {Op::kDtype, "dtype", "fp32|fp64|int32|int64", {K::kCall}},
      {Op::kRedop, "redop", "sum|max|min|avg", {K::kCall}},
      {Op::kRoot, "root", "R", {K::kCall}},
      {Op::kPeer, "peer", "R", {K::kCall}},
      {Op::kComm, "comm", "tp|cp|dp", {K::kCall}},
      {Op::kEarly, "early", "", {K::kRecord}},
      {Op::kStale, "stale", "", {K::kRecord, K::kWait}},
      {Op::kNever, "never", "", {K::kRecord}},
      {Op::kStream, "stream", "compute|cp|dp", {K::kWait}},
      {Op::kScale, "scale", "X", {K::kKernel}},
      {Op::kShift, "shift", "X", {K::kKernel}},
      {Op::kZero, "zero", "", {K::kKernel}},
      {Op::kNan, "nan", "", {K::kKernel}},
      {Op::kPrevious, "previous", "", {K::kKernel}},
      {Op::kInput, "input", "", {K::kKernel}},
      {Op::kOffset, "offset", "K", {K::kUpload}},
      {Op::kNextRank, "next_rank", "", {K::kUpload}},
      {Op::kRestart, "restart", "", {K::kUpload}},
      {Op::kHalves, "halves", "", {K::kUpload}},
      {Op::kLayout, "layout", "contiguous|zigzag", {K::kUpload}},
      {Op::kDuplicate, "duplicate", "", {K::kUpload}},
      {Op::kExit, "exit", "", kAny},
      {Op::kKill, "kill", "", kAny},
      {Op::kHang, "hang", "", kAny},
      {Op::kPause, "pause", "SECONDS", kAny}};
  return kRows;
}

bool SiteFilter::matches(const Site& site) const {
  const Where& w = site.where;
  if (kind && *kind != site.kind) return false;
  if (!ranks.empty() && std::none_of(ranks.begin(), ranks.end(), [&](const std::pair<int, int>& r) {
        return r.first <= site.rank && site.rank <= r.second;
      }))
    return false;
  if ((step_from >= 0 && w.step < step_from) || (step_to >= 0 && w.step > step_to)) return false;
  if ((microbatch >= 0 && w.microbatch != microbatch) || (layer >= 0 && w.layer != layer)) return false;
  if ((ring_step >= 0 && w.ring_step != ring_step) || (pass && w.pass != *pass)) return false;
  return like(site.name, name);
}

Result<Mutation> parse_mutation(std::string_view text) {
  const auto refuse = [&](const std::string& why) { return usage_error(fmt::format("mutation '{}': {}", text, why)); };
  const size_t at = text.find('@');
  if (at == std::string_view::npos)
    return refuse("there is no '@': write OP@NAME[:key=value,...], as in drop@ring.kv_send:rank=1");
  auto op = parse_op(text.substr(0, at));
  if (!op) return refuse(op.error().message);
  if (auto ok = check_value(op->first, op->second); !ok) return refuse(ok.error().message);
  auto site = parse_site(text.substr(at + 1));
  if (!site) return refuse(site.error().message);
  Mutation mutation{op->first, op->second, std::move(*site)};
  const auto& acts_on = row_of(mutation.op).acts_on;
  if (mutation.site.kind && std::find(acts_on.begin(), acts_on.end(), *mutation.site.kind) == acts_on.end())
    return refuse(fmt::format("{} does not act on a {}", row_of(mutation.op).name, name(*mutation.site.kind)));
  return mutation;
}

std::string to_text(const Mutation& mutation) {
  const SiteFilter& site = mutation.site;
  std::vector<std::string> keys;
  if (!site.ranks.empty()) {
    std::vector<std::string> ranks;
    for (const auto& [from, to] : site.ranks)
      ranks.push_back(from == to ? std::to_string(from) : fmt::format("{}-{}", from, to));
    keys.push_back(fmt::format("rank={}", fmt::join(ranks, "+")));
  }
  if (site.step_from >= 0 || site.step_to >= 0) {
    const int from = std::max(site.step_from, 0);
    keys.push_back(site.step_to < 0       ? fmt::format("step={}-", from)
                   : site.step_to == from ? fmt::format("step={}", from)
                                          : fmt::format("step={}-{}", from, site.step_to));
  }
  const auto add = [&](const char* key, int value) {
    if (value >= 0) keys.push_back(fmt::format("{}={}", key, value));
  };
  add("microbatch", site.microbatch);
  add("layer", site.layer);
  for (const auto& [word, pass] : kPasses)
    if (site.pass == pass) keys.push_back(fmt::format("pass={}", word));
  add("ring_step", site.ring_step);
  if (site.kind) keys.push_back(fmt::format("kind={}", name(*site.kind)));
  add("n", site.n);
  return fmt::format("{}{}{}@{}{}{}", row_of(mutation.op).name, mutation.value.empty() ? "" : "=", mutation.value,
                     site.name, keys.empty() ? "" : ":", fmt::join(keys, ","));
}

std::vector<std::vector<uint32_t>> sites_of(const Mutation& mutation, const SiteTable& sites) {
  const auto& acts_on = row_of(mutation.op).acts_on;
  std::vector<std::vector<uint32_t>> found(sites.size());
  for (size_t rank = 0; rank < sites.size(); ++rank) {
    int n = 0;
    for (const Site& site : sites[rank]) {
      if (std::find(acts_on.begin(), acts_on.end(), site.kind) == acts_on.end() || !mutation.site.matches(site))
        continue;
      if (mutation.site.n < 0 || mutation.site.n == n) found[rank].push_back(site.index);
      ++n;
    }
  }
  return found;
}

}  // namespace ringscope
