#include "tools/cli/campaign.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>

#include "tools/analyze/analyze.h"
#include "tools/campaign/campaign.h"
#include "tools/cli/command.h"
#include "tools/cli/internal_error.h"
#include "tools/cli/interrupt.h"
#include "tools/cli/output.h"
#include "tracedb/base/rank_range.h"

namespace ringscope::cli {
namespace {

using campaign::Outcome;
using campaign::Row;
using campaign::Share;
using campaign::Summary;
using campaign::Told;
using campaign::VerdictKind;
using nlohmann::ordered_json;

// Keys of a job that a campaign lets one fix; the rest is the campaign's own (seed, recording) or no part of it.
bool is_fixable(const FlagRow& row) {
  if (row.name == "checkpoint" || row.name == "pipeline-model-parallel-size") return false;
  return row.group == "Layout" || row.group == "Model" || row.group == "Communication" || row.name == "train-iters" ||
         row.name == "labels-kept" || row.name == "turns";
}

Result<uint64_t> read_count(const Arguments& args, std::string_view flag, uint64_t otherwise, uint64_t least) {
  const auto text = args.find(flag);
  if (!text) return otherwise;
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc() || end != text->data() + text->size() || value < least || value > 1'000'000'000)
    return usage_error(fmt::format("--{} '{}' is no whole number from {}: use for example --{} {}", flag, *text, least,
                                   flag, otherwise));
  return value;
}

Result<campaign::Options> read_options(const Arguments& args) {
  campaign::Options options;
  const auto seed = read_count(args, "seed", 1, 0);
  if (!seed) return tl::unexpected(seed.error());
  const auto count = read_count(args, "count", 100, 1);
  if (!count) return tl::unexpected(count.error());
  options.seed = *seed;
  options.count = int(*count);
  const auto rows = config_flags();
  for (const auto& [flag, value] : args.flags) {
    const auto row = std::find_if(rows.begin(), rows.end(), [&](const FlagRow& r) { return r.name == flag; });
    if (row != rows.end() && is_fixable(*row)) options.fixed.emplace_back(flag, value);
  }
  return options;
}

// A line after two seconds, then every two: a campaign takes minutes.
class Progress {
 public:
  explicit Progress(int count) : count_(count) {}
  void row(const Outcome& so_far) {
    const auto now = Clock::now();
    if (now < next_) return;
    next_ = now + std::chrono::seconds(2);
    const double seconds = std::chrono::duration<double>(now - start_).count();
    const Summary s = campaign::summarise(so_far);
    say(fmt::format("campaign: {}/{} mutants, {} twins, {:.1f}/s; wrong {}, false alarms {}, errors {}", s.mutants,
                    count_, s.twins, double(s.mutants) / seconds, s.wrong, s.false_alarms, so_far.errors.size()));
  }

 private:
  using Clock = std::chrono::steady_clock;
  int count_;
  Clock::time_point start_ = Clock::now(), next_ = start_ + std::chrono::seconds(2);
};

template <class List>
std::string joined(const List& list, std::string_view between) {
  return fmt::format("{}", fmt::join(list, between));
}

std::string told_text(const std::vector<Told>& findings) {
  std::vector<std::string> words;
  for (const Told& t : findings)
    words.push_back(fmt::format("{}{}[{}]", t.root ? "" : "~", t.id, format_rank_range(t.ranks)));
  return words.empty() ? "nothing" : joined(words, " ");
}

std::string expected_text(const campaign::Expected& e) {
  if (e.effect == campaign::Effect::kHarmless) return "nothing";
  return fmt::format("{}[{}]{}{}", e.ids.empty() ? "*.unexplained" : joined(e.ids, "|"), format_rank_range(e.ranks),
                     e.or_nobody ? " or nobody" : "", e.visible ? "" : " (not decidable)");
}

void print_rows(const Outcome& outcome) {
  for (const Row& row : outcome.rows)
    print(fmt::format("{:<11} {:<8} expected {}; told {}\n            {}\n", name(row.verdict),
                      name(row.expected.effect), expected_text(row.expected), told_text(row.findings),
                      campaign::command_of(row.layout, &row.mutation)));
}

void print_table(std::string_view title, const std::map<std::string, std::map<std::string, int>>& table) {
  print(fmt::format("\n{:<12}", title));
  for (int v = 0; v < campaign::kVerdicts; ++v) print(fmt::format(" {:>11}", name(VerdictKind(v))));
  print("\n");
  for (const auto& [line, verdicts] : table) {
    print(fmt::format("{:<12}", line));
    for (int v = 0; v < campaign::kVerdicts; ++v) {
      const auto found = verdicts.find(name(VerdictKind(v)));
      print(fmt::format(" {:>11}", found == verdicts.end() ? 0 : found->second));
    }
    print("\n");
  }
}

void print_bad(const Outcome& outcome) {
  for (const VerdictKind kind : {VerdictKind::kWrong, VerdictKind::kFalseAlarm, VerdictKind::kMissed})
    for (const Row& row : outcome.rows)
      if (row.verdict == kind)
        print(fmt::format("\n{}: {}\n  expected {}; told {}\n", name(kind),
                          campaign::command_of(row.layout, &row.mutation), expected_text(row.expected),
                          told_text(row.findings)));
  for (const campaign::Twin& twin : outcome.twins)
    if (twin.false_alarm)
      print(fmt::format("\nfalse_alarm, without a mutation: {}\n  told {}\n",
                        campaign::command_of(twin.layout, nullptr), told_text(twin.findings)));
  for (const std::string& error : outcome.errors) print(fmt::format("\nerror: {}\n", error));
}

void print_share(std::string_view what, const Share& s) {
  const auto percent = [&](int n) { return s.all ? 100.0 * n / s.all : 0.0; };
  print(fmt::format("{:<34} {:>5}: right {} ({:.1f} %), partly {}, careful {}, missed {} ({:.1f} %), wrong {}\n", what,
                    s.all, s.right, percent(s.right), s.partly, s.careful, s.missed, percent(s.missed), s.wrong));
}

void print_summary(const Summary& s, const Outcome& outcome) {
  print(fmt::format("\n{} mutants over {} layouts, {} twins; {} draws refused and drawn again\n", s.mutants, s.layouts,
                    s.twins, outcome.refused));
  print_share("hangs that can be decided", s.decidable_hangs);
  print_share("hangs that cannot", s.undecidable_hangs);
  print_share("ranks that left", s.exits);
  print_share("visible numbers with a name", s.visible_corrupt);
  print_share("visible numbers without a name", s.nameless_corrupt);
  print_share("needed edges", s.needed_edges);
  print(fmt::format("redundant edges {}, told {}; harmless {}, alarms {}; twins {}, alarms {}\n", s.redundant_edges,
                    s.redundant_told, s.harmless, s.harmless_alarms, s.twins, s.twin_alarms));
  print(fmt::format("silent {}, accused {}\n", s.silent, s.silent_accused));
  print(fmt::format("wrong accusations {}, false alarms {}, errors {}\n", s.wrong, s.false_alarms,
                    outcome.errors.size()));
  if (!outcome.without_site.empty())
    print(fmt::format("no site in any of these jobs: {}\n", joined(outcome.without_site, ", ")));
}

ordered_json findings_json(const std::vector<Told>& findings) {
  ordered_json out = ordered_json::array();
  for (const Told& t : findings) out.push_back({{"id", t.id}, {"root", t.root}, {"ranks", t.ranks}});
  return out;
}

ordered_json row_json(const Row& row) {
  const campaign::Expected& e = row.expected;
  return {{"mutation", to_text(row.mutation)},
          {"flags", campaign::flags_of(row.layout.config)},
          {"recording", name(row.layout.keep)},
          {"command", campaign::command_of(row.layout, &row.mutation)},
          {"effect", name(e.effect)},
          {"expected",
           {{"ids", e.ids},
            {"ranks", e.ranks},
            {"or_nobody", e.or_nobody},
            {"visible", e.visible},
            {"edge", e.edge},
            {"needed", e.needed}}},
          {"verdict", name(row.verdict)},
          {"findings", findings_json(row.findings)}};
}

ordered_json share_json(const Share& s) {
  return {{"all", s.all},         {"right", s.right},   {"partly", s.partly},
          {"careful", s.careful}, {"missed", s.missed}, {"wrong", s.wrong}};
}

ordered_json summary_json(const Summary& s, const Outcome& outcome) {
  return {{"mutants", s.mutants},
          {"layouts", s.layouts},
          {"twins", s.twins},
          {"refused", outcome.refused},
          {"decidable_hangs", share_json(s.decidable_hangs)},
          {"undecidable_hangs", share_json(s.undecidable_hangs)},
          {"exits", share_json(s.exits)},
          {"visible_corrupt", share_json(s.visible_corrupt)},
          {"visible_corrupt_without_name", share_json(s.nameless_corrupt)},
          {"needed_edges", share_json(s.needed_edges)},
          {"redundant_edges", {{"all", s.redundant_edges}, {"told", s.redundant_told}}},
          {"harmless", {{"all", s.harmless}, {"false_alarms", s.harmless_alarms}}},
          {"twin_false_alarms", s.twin_alarms},
          {"silent", {{"all", s.silent}, {"accused", s.silent_accused}}},
          {"wrong", s.wrong},
          {"false_alarms", s.false_alarms},
          {"by_operation", s.by_operation},
          {"by_effect", s.by_effect},
          {"without_site", outcome.without_site},
          {"errors", outcome.errors},
          {"interrupted", outcome.interrupted}};
}

void print_outcome(const Outcome& outcome, const Summary& summary, const campaign::Options& options, bool json) {
  if (!json) {
    print_rows(outcome);
    print_table("operation", summary.by_operation);
    print_table("effect", summary.by_effect);
    print_bad(outcome);
    print_summary(summary, outcome);
    return;
  }
  ordered_json runs = ordered_json::array(), twins = ordered_json::array();
  for (const Row& row : outcome.rows) runs.push_back(row_json(row));
  for (const campaign::Twin& twin : outcome.twins)
    if (twin.false_alarm)
      twins.push_back(
          {{"command", campaign::command_of(twin.layout, nullptr)}, {"findings", findings_json(twin.findings)}});
  print_json({{"schema", "ringscope.campaign/1"},
              {"seed", options.seed},
              {"runs", runs},
              {"twins_with_findings", twins},
              {"summary", summary_json(summary, outcome)}});
}

}  // namespace

std::vector<Option> campaign_options() {
  std::vector<Option> options{{"seed", "S", "campaign: everything that is drawn follows from it (default 1)"},
                              {"count", "N", "campaign: mutants (default 100; two or three a second)"},
                              {"table", "", "campaign: print the judge's table of what may be found, and run nothing"}};
  for (const FlagRow& row : config_flags())
    if (is_fixable(row)) options.push_back({row.name, row.value, row.help, row.short_form, row.group, true});
  return options;
}

Result<int> run_campaign_verb(const Arguments& args) {
  auto options = read_options(args);
  if (!options) return tl::unexpected(options.error());
  if (args.has("table")) {
    print(campaign::judge_table_text());
    return kExitClean;
  }
  const InterruptGuard guard;
  Progress progress(options->count);
  campaign::Hooks hooks;
  hooks.diagnose = [](const TraceView& view) { return analyze(view); };
  hooks.interrupted = interrupted;
  hooks.on_begin = [](const std::string& command) { set_current_work(command.c_str()); };
  hooks.on_row = [&](const Outcome& so_far) { progress.row(so_far); };
  auto outcome = campaign::run_campaign(*options, hooks);
  set_current_work("");
  if (!outcome) return tl::unexpected(outcome.error());
  const Summary summary = campaign::summarise(*outcome);
  print_outcome(*outcome, summary, *options, args.json());
  if (outcome->interrupted) return kExitInterrupted;
  if (!outcome->errors.empty()) return kExitInternal;
  return summary.wrong || summary.false_alarms ? kExitFindings : kExitClean;
}

}  // namespace ringscope::cli
