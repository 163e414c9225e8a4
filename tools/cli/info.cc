// ringscope info DB: what a trace holds.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "tools/cli/command.h"
#include "tools/cli/output.h"
#include "tools/cli/trace_input.h"
#include "tracedb/base/rank_range.h"

namespace ringscope::cli {
namespace {

using nlohmann::ordered_json;

ordered_json number(double value) { return std::isfinite(value) ? ordered_json(value) : ordered_json(nullptr); }

std::string meta(const TraceView& view, const char* key) {
  const auto found = view.meta.find(key);
  return found == view.meta.end() ? "" : found->second;
}

// `sizes`: of the axes, as any rank recorded them; empty when none did.
ordered_json layout(const TraceView& view, const ordered_json& sizes) {
  ordered_json out = sizes.empty() ? ordered_json{{"tp", 0}, {"cp", 0}, {"dp", 0}, {"pp", 0}} : sizes[0];
  for (const char* key : {meta_key::kAxisOrder, meta_key::kCpLayout, meta_key::kSeqLength, meta_key::kPaddedLength})
    if (const std::string value = meta(view, key); !value.empty()) out[key] = value;
  return out;
}

ordered_json operations(const TraceView& view) {
  std::map<std::string, int64_t> by_kind;
  int64_t pending = 0;
  uint64_t bytes = 0;
  for (const OpRow& op : view.ops) {
    if (op.coll != kNoRow) ++by_kind[name(view.colls[op.coll].func)];
    else if (op.p2p != kNoRow) ++by_kind[view.p2ps[op.p2p].direction == Direction::kSend ? "send" : "recv"];
    else ++by_kind[name(op.kind)];
    pending += op.state != OpState::kCompleted &&
               (op.kind == OpKind::kKernel || op.kind == OpKind::kCollective || op.kind == OpKind::kP2p);
    bytes += op.bytes_sent;
  }
  return {{"total", view.ops.size()}, {"unfinished", pending}, {"bytes_sent", bytes}, {"by_kind", by_kind}};
}

// Group of ranks by axis: how many communicators, how large.
ordered_json communicators(const TraceView& view) {
  ordered_json out = ordered_json::array();
  for (const CommRow& comm : view.comms)
    out.push_back({{"name", comm.name}, {"axis", name(comm.axis)}, {"ranks", comm.ranks}});
  return out;
}

ordered_json training(const TraceView& view) {
  const TrainStepRow *first = nullptr, *last = nullptr;
  int64_t steps = 0;
  uint64_t peak = 0;
  for (const TrainStepRow& row : view.train_steps) {
    peak = std::max(peak, row.peak_bytes);
    steps = std::max<int64_t>(steps, row.where.step + 1);
    if (!first || row.where.step < first->where.step) first = &row;
    if (!last || row.where.step > last->where.step) last = &row;
  }
  ordered_json out = {{"steps", steps}};
  if (first) out["first_loss"] = number(first->loss), out["last_loss"] = number(last->loss), out["peak_bytes"] = peak;
  return out;
}

ordered_json exits(const TraceView& view) {
  ordered_json out = ordered_json::array();
  for (const RankExitRow& e : view.rank_exits)
    out.push_back({{"rank", e.rank}, {"status", e.status}, {"reason", e.reason}});
  return out;
}

ordered_json losses(const TraceView& view) {
  ordered_json out = ordered_json::array();
  for (const LostRow& l : view.lost)
    out.push_back({{"rank", l.rank}, {"ring", l.ring}, {"records", l.records}, {"torn", l.torn}});
  return out;
}

Result<ordered_json> rows_of(const Store& store, const std::string& sql) {
  auto result = store.query(sql);
  if (!result) return tl::unexpected(result.error());
  ordered_json out = ordered_json::array();
  for (const auto& row : result->rows) {
    ordered_json item;
    for (size_t c = 0; c < row.size(); ++c) {
      if (const auto* i = std::get_if<int64_t>(&row[c])) item[result->columns[c]] = *i;
      else if (const auto* d = std::get_if<double>(&row[c])) item[result->columns[c]] = number(*d);
      else if (const auto* t = std::get_if<std::string>(&row[c])) item[result->columns[c]] = *t;
      else item[result->columns[c]] = nullptr;
    }
    out.push_back(std::move(item));
  }
  return out;
}

Result<ordered_json> describe(const std::string& path) {
  SlowPhase phase("reading " + path, false);
  auto store = open_trace(path);
  if (!store) return tl::unexpected(store.error());
  auto view = load_view(*store);
  if (!view) return tl::unexpected(view.error());
  auto probes =
      rows_of(*store, "SELECT name, attached, error, events, dropped, ns_per_event FROM probe ORDER BY process, name");
  if (!probes) return tl::unexpected(probes.error());
  auto sizes = rows_of(*store, "SELECT tp_size AS tp, cp_size AS cp, dp_size AS dp, pp_size AS pp FROM rank LIMIT 1");
  if (!sizes) return tl::unexpected(sizes.error());
  auto findings = rows_of(*store, "SELECT finding AS id, root, ranks, sentence FROM finding ORDER BY id");
  if (!findings) return tl::unexpected(findings.error());

  auto statistics = rows_of(*store,
                            "SELECT (SELECT count(*) FROM softmax_stat) AS softmax_stats, "
                            "(SELECT coalesce(sum(bad), 0) FROM softmax_stat) AS bad_softmax_rows, "
                            "(SELECT count(*) FROM tensor_stat WHERE role < 2) AS tensor_stats, "
                            "(SELECT coalesce(sum(bad), 0) FROM tensor_stat) AS bad_elements, "
                            "(SELECT count(*) FROM (SELECT 1 FROM tensor_stat WHERE role < 2 "  // of parameters
                            "GROUP BY step, name, role, part HAVING count(*) > 1)) AS replicas_compared, "
                            "(SELECT count(DISTINCT tensor) FROM v_replica_mismatch) AS replica_mismatches");
  if (!statistics) return tl::unexpected(statistics.error());

  const std::string outcome = meta(*view, meta_key::kOutcome);
  ordered_json out = {{"schema", "ringscope.info/1"}, {"path", path}};
  out["outcome"] = outcome.empty() ? ordered_json(nullptr) : ordered_json(outcome);
  out["tool_version"] = meta(*view, meta_key::kToolVersion);
  out["ranks"] = view->ranks.size();
  out["layout"] = layout(*view, *sizes);
  out["training"] = training(*view);
  out["operations"] = operations(*view);
  out["communicators"] = communicators(*view);
  out["streams"] = view->streams.size();
  out["buffers"] = view->buffers.size();
  out["accesses"] = view->accesses.size();
  out["softmax_rows"] = view->softmax_rows.size();
  out["position_runs"] = view->position_runs.size();
  out["statistics"] = (*statistics)[0];
  out["rank_exits"] = exits(*view);
  out["lost"] = losses(*view);
  out["probes"] = *probes;
  out["findings"] = *findings;
  ordered_json config = ordered_json::parse(meta(*view, meta_key::kConfig), nullptr, false);
  out["config"] = config.is_discarded() ? ordered_json(nullptr) : config;
  return out;
}

std::string communicator_text(const ordered_json& list) {
  std::map<std::string, std::pair<int, size_t>> by_axis;  // communicators, largest size
  for (const ordered_json& comm : list) {
    auto& [count, size] = by_axis[comm["axis"].get<std::string>()];
    ++count;
    size = std::max(size, comm["ranks"].size());
  }
  std::string text;
  for (const auto& [axis, entry] : by_axis)
    text += fmt::format("{}{} x {} of {} ranks", text.empty() ? "" : ", ", entry.first, axis, entry.second);
  return text.empty() ? "none" : text;
}

std::string exit_text(const ordered_json& list) {
  std::map<std::string, std::vector<int>> by_reason;
  for (const ordered_json& e : list) by_reason[e["reason"].get<std::string>()].push_back(e["rank"].get<int>());
  std::string text;
  for (const auto& [reason, ranks] : by_reason)
    text += fmt::format("{}{}: ranks {}", text.empty() ? "" : "; ", reason, format_rank_range(ranks));
  return text.empty() ? "unknown: the program was killed or still runs" : text;
}

std::string kinds_text(const ordered_json& kinds) {
  std::string text;
  for (const auto& [kind, count] : kinds.items())
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count.get<int64_t>(), kind);
  return text;
}

std::string statistics_text(const ordered_json& s, bool complete) {
  const auto differ = s["replica_mismatches"].get<int64_t>(), bad = s["bad_softmax_rows"].get<int64_t>();
  std::string text =
      fmt::format("{} of softmax, {} of parameters; ", s["softmax_stats"].dump(), s["tensor_stats"].dump());
  if (differ) text += fmt::format("{} parameters differ between replicas (v_replica_mismatch)", differ);
  else if (s["replicas_compared"] == 0) text += "no replicas to compare";
  else text += complete ? "replicas agree bit by bit" : "replicas agree bit by bit as far as recorded";
  if (bad) text += fmt::format("; {} softmax rows are no numbers (softmax_stat)", bad);
  if (s["bad_elements"].get<int64_t>())
    text += fmt::format("; {} NaN or infinite values (tensor_stat)", s["bad_elements"].dump());
  return text;
}

std::string as_text(const ordered_json& info) {
  const auto word = [](const ordered_json& parent, const char* key, const char* otherwise) {
    return parent.contains(key) && parent[key].is_string() ? parent[key].get<std::string>() : std::string(otherwise);
  };
  const ordered_json &layout = info["layout"], &training = info["training"], &ops = info["operations"];
  std::string text = fmt::format("{}\noutcome        {}; recorded by ringscope {}\n", info["path"].get<std::string>(),
                                 word(info, "outcome", "unknown: the program was killed or still runs"),
                                 word(info, "tool_version", "?"));
  text +=
      fmt::format("ranks          {}: tp {} x cp {} x dp {} x pp {}, order {}, cp layout {}\n", info["ranks"].dump(),
                  layout["tp"].dump(), layout["cp"].dump(), layout["dp"].dump(), layout["pp"].dump(),
                  word(layout, meta_key::kAxisOrder, "?"), word(layout, meta_key::kCpLayout, "?"));
  text += fmt::format("sequence       {} tokens, padded to {}\n", word(layout, meta_key::kSeqLength, "?"),
                      word(layout, meta_key::kPaddedLength, "?"));
  text += fmt::format("steps          {}", training["steps"].dump());
  if (training.contains("first_loss"))
    text += fmt::format(", loss {} -> {}, peak {} bytes a rank", training["first_loss"].dump(),
                        training["last_loss"].dump(), training["peak_bytes"].dump());
  text += fmt::format("\noperations     {} ({}); {} unfinished; {} bytes sent\n", ops["total"].dump(),
                      kinds_text(ops["by_kind"]), ops["unfinished"].dump(), ops["bytes_sent"].dump());
  text += fmt::format("communicators  {}\n", communicator_text(info["communicators"]));
  text += fmt::format("recorded       {} streams, {} buffers, {} accesses, {} softmax rows, {} position runs\n",
                      info["streams"].dump(), info["buffers"].dump(), info["accesses"].dump(),
                      info["softmax_rows"].dump(), info["position_runs"].dump());
  text += fmt::format("statistics     {}\n",
                      statistics_text(info["statistics"], info["lost"].empty() && info["outcome"].is_string()));
  text += fmt::format("ends           {}\n", exit_text(info["rank_exits"]));
  for (const ordered_json& probe : info["probes"])
    text += fmt::format("probe          {}: {} records, {} lost{}{}\n", probe["name"].get<std::string>(),
                        probe["events"].dump(), probe["dropped"].dump(),
                        probe["ns_per_event"].is_number()
                            ? fmt::format(", {:.0f} ns each", probe["ns_per_event"].get<double>())
                            : std::string(),
                        probe["error"].is_string() ? "; " + probe["error"].get<std::string>() : "");
  for (const ordered_json& lost : info["lost"])
    text += fmt::format("lost           rank {}, {}: {} records, {} torn\n", lost["rank"].dump(),
                        lost["ring"].get<std::string>(), lost["records"].dump(), lost["torn"].dump());
  for (const ordered_json& f : info["findings"])
    text += fmt::format("finding        {}{}  {}\n", f["root"] == 1 ? "" : "(follows) ", f["id"].get<std::string>(),
                        f["sentence"].get<std::string>());
  return text;
}

Result<int> run(const Arguments& args) {
  if (args.positionals.empty()) return usage_error("info: name a trace, for example ringscope info demo.db");
  auto info = describe(args.positionals[0]);
  if (!info) return tl::unexpected(info.error());
  if (args.json()) {
    print_json(*info);
    return kExitClean;
  }
  print(as_text(*info));
  if ((*info)["findings"].empty()) say("next: ringscope diagnose " + args.positionals[0]);
  return kExitClean;
}

}  // namespace

const Command& info_command() {
  static const Command command{
      "info",
      "what a trace holds: ranks, layout, steps, operations, losses, probes, findings",
      "DB",
      {"ringscope info demo.db", "ringscope info --json demo.db"},
      {},
      1,
      run,
      "Findings are those that the run itself stored (a stalled run, or train --diagnose); diagnose finds them anew."};
  return command;
}

}  // namespace ringscope::cli
