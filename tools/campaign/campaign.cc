#include "tools/campaign/campaign.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <set>

#include "runtime/train/train.h"
#include "tools/campaign/mutants.h"

namespace ringscope::campaign {
namespace {

using Clock = std::chrono::steady_clock;

std::vector<Told> told(const Report& report) {
  std::vector<Told> out;
  for (const Finding& f : report.findings) out.push_back({f.id, f.root, f.ranks});
  return out;
}

bool acts_on_edges_alone(MutationOp op) {
  return op == MutationOp::kEarly || op == MutationOp::kStale || op == MutationOp::kNever || op == MutationOp::kStream;
}

// A job of the campaign with what is known of it once: its sites, its run without a mutation.
struct Job {
  Layout layout;
  std::optional<SiteTable> sites;
  // The runs without a mutation, by how they were recorded. Their bits are the same under turns and with free threads;
  // their records are not.
  std::map<std::pair<Keep, bool>, Run> twins;
};

struct Draw {
  Job* job = nullptr;
  Mutation mutation;
};

class Campaign {
 public:
  Campaign(const Options& options, const Hooks& hooks) : options_(options), hooks_(hooks), random_(options.seed) {}

  Result<Outcome> run() {
    shuffle_operations();
    for (int i = 0; i < options_.count && !stopped(); ++i) {
      if (i % options_.mutants_per_layout == 0)
        if (auto made = new_job(); !made) return tl::unexpected(made.error());
      auto drawn = draw(operations_[size_t(i) % operations_.size()]);
      if (!drawn) return tl::unexpected(drawn.error());
      if (*drawn) one_mutant(std::move(**drawn));
    }
    for (size_t op = 0; op < hopeless_.size(); ++op)
      if (hopeless_[op]) outcome_.without_site.emplace_back(mutation_ops()[op].name);
    return std::move(outcome_);
  }

 private:
  bool stopped() {
    if (hooks_.interrupted && hooks_.interrupted()) outcome_.interrupted = true;
    return outcome_.interrupted;
  }

  void shuffle_operations() {
    for (const MutationOpRow& row : mutation_ops()) operations_.push_back(row.op);
    for (size_t i = operations_.size(); i > 1; --i) std::swap(operations_[i - 1], operations_[random_.below(i)]);
  }

  // Recordings are large: those of the newest jobs are kept.
  void forget_old_twins() {
    constexpr size_t kKept = 24;
    if (jobs_.size() > kKept) jobs_.erase(jobs_.begin());
  }

  const SiteTable* sites_of(Job& job) {
    if (!job.sites) {
      auto sites = list_sites(job.layout.config);
      if (!sites) {
        outcome_.errors.push_back(flags_of(job.layout.config) + ": " + sites.error().message);
        return nullptr;
      }
      job.sites = std::move(*sites);
    }
    return &*job.sites;
  }

  // In the newest job, then in any that is kept, then in new ones: an operation may have no site in a job, or nothing
  // to change at the one that was drawn.
  Result<std::optional<Draw>> draw(MutationOp op) {
    constexpr int kNewest = 6, kKept = 24, kAll = 48;
    for (int attempt = 0; attempt < kAll && !hopeless_[size_t(op)]; ++attempt) {
      if (attempt >= kKept)
        if (auto made = new_job(); !made) return tl::unexpected(made.error());
      Job& job = attempt < kNewest || attempt >= kKept ? *jobs_.back() : *jobs_[random_.below(jobs_.size())];
      const SiteTable* sites = sites_of(job);
      if (!sites) return std::optional<Draw>();
      std::optional<Mutation> mutation = draw_mutation(random_, op, job.layout.config, *sites);
      if (!mutation) continue;
      auto change = change_of(*mutation, job.layout.config, *sites);
      if (change && !change->ranks.empty()) return std::optional<Draw>(Draw{&job, std::move(*mutation)});
      ++outcome_.refused;
    }
    hopeless_[size_t(op)] = true;
    return std::optional<Draw>();
  }

  Status new_job() {
    auto layout = draw_layout(random_, options_.fixed);
    if (!layout) return tl::unexpected(layout.error());
    jobs_.push_back(std::make_unique<Job>(Job{*layout, {}, {}}));
    forget_old_twins();
    return {};
  }

  void one_mutant(Draw drawn) {
    Job& job = *drawn.job;
    const SiteTable& sites = *job.sites;
    Row row;
    row.mutation = std::move(drawn.mutation);
    row.layout = job.layout;
    auto change = change_of(row.mutation, job.layout.config, sites);
    const bool edge = changes_edges_alone(row.mutation, *change, sites);
    if (edge || row.mutation.op == MutationOp::kDrop) row.layout.keep = Keep::kStream;
    if (edge && !row.layout.config.turns) row.layout.config.turns = true, row.layout.config.turns_seed = 1;
    const Run* twin = twin_of(job, row.layout);
    if (!twin) return;
    row.layout.config.mutations = {row.mutation};
    judge(row, job, std::move(*change), *twin);
    if (hooks_.on_row && !outcome_.interrupted) hooks_.on_row(outcome_);
  }

  static bool changes_edges_alone(const Mutation& mutation, const Change& change, const SiteTable& sites) {
    if (acts_on_edges_alone(mutation.op)) return true;
    if (mutation.op != MutationOp::kDrop) return false;
    for (size_t rank = 0; rank < sites.size(); ++rank)
      for (const uint32_t index : change.sites[rank])
        if (sites[rank][index].kind != SiteKind::kRecord && sites[rank][index].kind != SiteKind::kWait) return false;
    return true;
  }

  const Run* twin_of(Job& job, const Layout& layout) {
    const std::pair key(layout.keep, layout.config.turns);
    if (const auto known = job.twins.find(key); known != job.twins.end()) return &known->second;
    begin(command_of(layout, nullptr));
    auto run = record(layout.config, layout.keep, hooks_.diagnose, hooks_.interrupted);
    if (!run || run->end != RunEnd::kCompleted) {
      if (!stopped())
        outcome_.errors.push_back(command_of(layout, nullptr) +
                                  ": without a mutation: " + (run ? "it did not complete" : run.error().message));
      return nullptr;
    }
    if (!job.twins.empty() && !(job.twins.begin()->second.values == run->values))
      outcome_.errors.push_back(command_of(layout, nullptr) + ": two runs of one job differ in their bits");
    outcome_.twins.push_back({layout, is_false_alarm(run->report), told(run->report)});
    return &job.twins.emplace(key, std::move(*run)).first->second;
  }

  void begin(const std::string& command) {
    if (hooks_.on_begin) hooks_.on_begin(command);
  }

  void judge(Row& row, Job& job, Change change, const Run& twin) {
    const std::string command = command_of(row.layout, &row.mutation);
    begin(command);
    const auto started = Clock::now();
    auto mutant = record(row.layout.config, row.layout.keep, hooks_.diagnose, hooks_.interrupted);
    row.seconds = std::chrono::duration<double>(Clock::now() - started).count();
    if (!mutant) {
      outcome_.errors.push_back(command + ": " + mutant.error().message);
      return;
    }
    if (mutant->end == RunEnd::kStopped) {
      if (!stopped()) outcome_.errors.push_back(command + ": it stopped by itself");
      return;
    }
    Judge judge(row.mutation, row.layout.config, *job.sites, std::move(change), twin.view);
    auto expected = judge.expect(measure(row.mutation, row.layout.config, *mutant, twin));
    if (!expected) {
      outcome_.errors.push_back(command + ": " + expected.error().message);
      return;
    }
    row.expected = std::move(*expected);
    row.verdict = verdict(row.expected, mutant->report);
    row.findings = told(mutant->report);
    outcome_.rows.push_back(std::move(row));
  }

  const Options& options_;
  const Hooks& hooks_;
  Random random_;
  std::vector<MutationOp> operations_;
  std::vector<char> hopeless_ = std::vector<char>(mutation_ops().size(), 0);
  std::vector<std::unique_ptr<Job>> jobs_;
  Outcome outcome_;
};

}  // namespace

std::string command_of(const Layout& layout, const Mutation* mutation) {
  std::string text = "ringscope train " + flags_of(layout.config);
  if (mutation) text += " --mutate '" + to_text(*mutation) + "'";
  return text + (layout.keep == Keep::kStream ? " --diagnose" : " --diagnose --flight");
}

Result<Outcome> run_campaign(const Options& options, const Hooks& hooks) { return Campaign(options, hooks).run(); }

void Share::add(VerdictKind kind) {
  ++all;
  switch (kind) {
    case VerdictKind::kRight: ++right; break;
    case VerdictKind::kPartly: ++partly; break;
    case VerdictKind::kCareful: ++careful; break;
    case VerdictKind::kMissed: ++missed; break;
    case VerdictKind::kWrong: ++wrong; break;
    default: break;
  }
}

namespace {

void count_row(const Row& row, Summary& s) {
  const Expected& e = row.expected;
  const auto accuses = [&] {
    return std::any_of(row.findings.begin(), row.findings.end(), [](const Told& t) { return !t.ranks.empty(); });
  };
  ++s.by_operation[std::string(mutation_ops()[size_t(row.mutation.op)].name)][name(row.verdict)];
  ++s.by_effect[name(e.effect)][name(row.verdict)];
  s.wrong += row.verdict == VerdictKind::kWrong;
  const bool alarm = row.verdict == VerdictKind::kFalseAlarm;
  s.false_alarms += alarm;
  if (e.edge && e.needed) {
    s.needed_edges.add(row.verdict);
    return;
  }
  if (e.edge && e.effect == Effect::kHarmless) ++s.redundant_edges, s.redundant_told += alarm;
  switch (e.effect) {
    case Effect::kHang: (e.visible ? s.decidable_hangs : s.undecidable_hangs).add(row.verdict); break;
    case Effect::kExit: s.exits.add(row.verdict); break;
    case Effect::kCorrupt:
      if (!e.visible) ++s.silent, s.silent_accused += accuses();
      else (e.ids.empty() ? s.nameless_corrupt : s.visible_corrupt).add(row.verdict);
      break;
    case Effect::kOrder: break;
    case Effect::kHarmless: ++s.harmless, s.harmless_alarms += alarm; break;
  }
}

}  // namespace

Summary summarise(const Outcome& outcome) {
  Summary s;
  s.mutants = int(outcome.rows.size());
  s.twins = int(outcome.twins.size());
  std::set<std::string> layouts;
  for (const Row& row : outcome.rows) {
    JobConfig bare = row.layout.config;
    bare.turns = false;
    layouts.insert(flags_of(bare));
    count_row(row, s);
  }
  s.layouts = int(layouts.size());
  for (const Twin& twin : outcome.twins) s.twin_alarms += twin.false_alarm;
  s.false_alarms += s.twin_alarms;
  return s;
}

}  // namespace ringscope::campaign
