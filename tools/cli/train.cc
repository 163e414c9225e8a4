// ringscope train: the reference training run, recorded and, when it stalls or on request, diagnosed.
#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>

#include "runtime/train/train.h"
#include "tools/analyze/analyze.h"
#include "tools/cli/command.h"
#include "tools/cli/interrupt.h"
#include "tools/cli/output.h"
#include "tools/cli/recording.h"
#include "tools/cli/report_output.h"
#include "tools/cli/sites.h"
#include "tools/cli/train_config.h"
#include "tools/report/report.h"
#include "tracedb/import/registry.h"
#include "tracedb/store/store.h"

namespace ringscope::cli {
namespace {

const char* outcome_word(RunEnd end) {
  return end == RunEnd::kCompleted ? "completed" : end == RunEnd::kStalled ? "stalled" : "interrupted";
}

std::string bytes_text(int64_t bytes) {
  if (bytes < 10'000) return fmt::format("{} B", bytes);
  if (bytes < 10'000'000) return fmt::format("{:.1f} kB", double(bytes) / 1e3);
  return bytes < 10'000'000'000 ? fmt::format("{:.1f} MB", double(bytes) / 1e6)
                                : fmt::format("{:.2f} GB", double(bytes) / 1e9);
}

// A line ahead of the run: what is about to happen, and that a planted bug is planted.
void announce(const JobConfig& c) {
  say(fmt::format("{} rank{}: tp {} x cp {} x dp {}{}, sequence {}, batch {}, {} steps, {}", c.world(),
                  c.world() == 1 ? "" : "s", c.tp, c.cp, c.dp, c.sequence_parallel ? ", sequence parallel" : "",
                  c.seq_length, c.global_batch_size, c.train_iters, name(c.dtype)));
  for (const FaultRow& row : fault_rows())
    if (row.id == c.fault.id) say(fmt::format("planted on purpose: {}: {}", to_text(c.fault), row.what));
  for (const Mutation& mutation : c.mutations) say(fmt::format("planted on purpose: {}", to_text(mutation)));
}

TrainHooks make_hooks(const JobConfig& config, bool quiet) {
  TrainHooks hooks;
  hooks.interrupted = interrupted;
  hooks.on_stall = [](const StallSnapshot& stall) {
    size_t waiting = 0;
    for (const BlockedTask& task : stall.blocked) waiting += !task.idle;
    say(fmt::format("stalled: {}; {} tasks wait",
                    stall.by_time ? "nothing moved for the whole timeout" : "no task can run", waiting));
  };
  if (quiet) return hooks;
  hooks.on_listing = [phase = std::make_shared<std::optional<SlowPhase>>()](bool begins) {
    if (begins) phase->emplace("listing what the ranks do", false);
    else phase->reset();
  };
  hooks.on_progress = [iters = config.train_iters](const StepReport& r) {
    say(fmt::format("step {:>{}}/{}  loss {:.4f}  grad_norm {:.4f}  lr {:.2e}  {:.0f} tokens/s  peak {}", r.step + 1,
                    std::to_string(iters).size(), iters, shown(r.loss), shown(r.grad_norm), r.lr, r.tokens_per_s,
                    bytes_text(r.peak_bytes)));
  };
  return hooks;
}

struct TrainFlags {
  bool diagnose = false, quiet = false, json = false;
  Severity least = Severity::kWarning;
  std::optional<AttentionPick> dump;
  std::string dump_dir;
  RecordingOptions recording;
};

// "L,S".
Result<AttentionPick> read_pick(const std::string& text) {
  AttentionPick pick;
  const char *end = text.data() + text.size(), *at = text.data();
  auto [comma, error] = std::from_chars(at, end, pick.layer);
  if (error == std::errc() && comma != end && *comma == ',') {
    const auto [last, error2] = std::from_chars(comma + 1, end, pick.step);
    if (error2 == std::errc() && last == end) return pick;
  }
  return usage_error(fmt::format("dump-attention '{}' is not LAYER,STEP: use for example 0,2", text));
}

Result<TrainFlags> read_flags(const Arguments& args, const JobConfig& config) {
  TrainFlags flags;
  const auto least = fail_on(args);
  if (!least) return tl::unexpected(least.error());
  flags.least = *least;
  flags.diagnose = args.has("diagnose");
  flags.quiet = args.has("quiet");
  flags.json = args.json();
  flags.recording.database = args.find("trace").value_or("");
  if (args.has("trace") && flags.recording.database.empty()) return usage_error("--trace needs a file name");
  flags.recording.stream = (args.has("trace") || flags.diagnose) && !args.has("flight");
  flags.recording.force = args.has("force");
  flags.recording.keep_spool = args.has("keep-spool");
  if (!args.has("trace") && (flags.recording.force || flags.recording.keep_spool))
    return usage_error(fmt::format("--{} goes with --trace DB", flags.recording.force ? "force" : "keep-spool"));
  if (const auto text = args.find("dump-attention")) {
    const auto pick = read_pick(*text);
    if (!pick) return tl::unexpected(pick.error());
    if (!args.has("trace"))
      return usage_error("--dump-attention goes with --trace DB: the tensors are left in DB.attention");
    if (config.checkpoint.empty())
      if (auto ok = check(*pick, config); !ok) return tl::unexpected(ok.error());
    flags.dump = *pick;
    flags.dump_dir = flags.recording.database + ".attention";
  }
  flags.recording.threads_expected = config.world() * 5 + 2;  // host, streams, transfer workers
  return flags;
}

// What `diagnose` says about the same recording.
Result<Report> report_of(Recording& recording, bool quiet) {
  SlowPhase phase("diagnosing", quiet);
  auto view = load_paths({recording.source()});
  if (!view) return unreadable_report({recording.source()}, view.error().message);
  Report report = analyze(*view);
  if (!recording.has_database()) return report;
  auto store = Store::open_writable(recording.database());
  if (!store) return tl::unexpected(store.error());
  if (auto saved = store->save_report(report); !saved) return tl::unexpected(saved.error());
  return report;
}

// An old dump is replaced with --force only, when the new one is there to be written; and only what is a dump's goes.
Status remove_old_dump(const std::string& dir) {
  namespace fs = std::filesystem;
  std::error_code error;
  std::vector<fs::path> old;
  if (!fs::exists(dir, error)) return {};
  for (fs::recursive_directory_iterator it(dir, error), end; !error && it != end; it.increment(error)) {
    const std::string file = it->path().filename().string();
    if (file == "layout.json" || (file.starts_with("rank_") && file.ends_with(".safetensors")))
      old.push_back(it->path());
  }
  for (const fs::path& path : old)
    if (!error) fs::remove(path, error);
  if (error) return data_error(dir + ": cannot replace: " + error.message());
  return {};
}

Status write_dump(const TrainFlags& flags, const JobConfig& config, const TrainResult& result) {
  if (result.attention.empty()) {
    say(fmt::format("no attention dump: step {} was not finished by all ranks", flags.dump->step));
    return {};
  }
  if (auto ok = remove_old_dump(flags.dump_dir); !ok) return ok;
  if (auto ok = write_attention_dump(flags.dump_dir, config, result.attention); !ok) return ok;
  if (!flags.quiet)
    say(fmt::format("attention of layer {}, step {} in {}", flags.dump->layer, flags.dump->step, flags.dump_dir));
  return {};
}

nlohmann::ordered_json steps_json(const std::vector<StepReport>& steps) {
  nlohmann::ordered_json out = nlohmann::ordered_json::array();
  const auto number = [](double v) {
    return std::isfinite(v) ? nlohmann::ordered_json(v) : nlohmann::ordered_json(nullptr);
  };
  for (const StepReport& s : steps)
    out.push_back({{"step", s.step},
                   {"loss", number(s.loss)},
                   {"grad_norm", number(s.grad_norm)},
                   {"lr", s.lr},
                   {"tokens_per_s", number(s.tokens_per_s)},
                   {"peak_bytes", s.peak_bytes}});
  return out;
}

Status finish(Recording& recording, bool quiet) {
  SlowPhase phase("writing " + recording.database(), quiet);
  return recording.finish();
}

// Said whatever else is silenced: who reads the result must know that it stands on less than all.
void warn_about(const Recording& recording, const TrainResult& result) {
  for (const std::string& loss : recording.losses()) warn(loss);
  for (const StepReport& step : result.steps) {
    if (std::isfinite(step.loss)) continue;
    warn(fmt::format("the loss is no finite number since step {}", step.step + 1));
    break;
  }
}

void print_result(const TrainResult& result, const std::optional<Report>& report, const TrainFlags& flags) {
  if (flags.json) {
    nlohmann::ordered_json out = {
        {"schema", "ringscope.train/1"}, {"outcome", outcome_word(result.end)}, {"steps", steps_json(result.steps)}};
    out["report"] =
        report ? nlohmann::ordered_json::parse(to_json(*report, kVersion)) : nlohmann::ordered_json(nullptr);
    if (!flags.recording.database.empty()) out["trace"] = flags.recording.database;
    print_json(out);
    return;
  }
  std::string line = fmt::format("{} after {} step{}", outcome_word(result.end), result.steps.size(),
                                 result.steps.size() == 1 ? "" : "s");
  if (!result.steps.empty())
    line += fmt::format(", loss {:.4f} -> {:.4f}", shown(result.steps.front().loss), shown(result.steps.back().loss));
  if (!flags.recording.database.empty()) line += fmt::format("; trace in {}", flags.recording.database);
  print(line + "\n");
  if (report) print(to_text(*report));
}

int code_of(RunEnd end, const std::optional<Report>& report, Severity least) {
  if (end == RunEnd::kStopped) return kExitInterrupted;
  if (end == RunEnd::kStalled) return kExitFindings;
  return report ? report_exit_code(*report, least) : kExitClean;
}

void say_next(const TrainFlags& flags, const std::optional<Report>& report, bool planted) {
  if (flags.quiet || flags.json) return;
  if (report && !report->findings.empty()) say(fmt::format("next: ringscope playbook {}", report->findings[0].id));
  else if (!report && !flags.recording.database.empty())
    say(fmt::format("next: ringscope diagnose {}", flags.recording.database));
  else if (!report && planted) say("next: the same with --diagnose names the planted bug");
}

// What can be mutated in this job.
Result<int> list(const Arguments& args, JobConfig config) {
  for (const char* of_a_run : {"trace", "diagnose", "dump-attention", "mutate", "fault"})
    if (args.has(of_a_run)) return usage_error(fmt::format("--sites runs nothing: leave out --{}", of_a_run));
  SlowPhase phase("listing", args.has("quiet"));
  auto sites = list_sites(config);
  if (!sites) return tl::unexpected(sites.error());
  print_sites(*sites, args.json());
  return kExitClean;
}

Result<int> run(const Arguments& args) {
  auto config = read_config(default_job(), args);
  if (!config) return tl::unexpected(config.error());
  if (auto ok = bring_fault_layout(*config); !ok) return tl::unexpected(ok.error());
  if (config->checkpoint.empty())  // otherwise the model is the checkpoint's, and train() checks it
    if (auto ok = validate(*config); !ok) return tl::unexpected(ok.error());
  if (args.has("sites")) return list(args, *config);
  auto flags = read_flags(args, *config);
  if (!flags) return tl::unexpected(flags.error());

  if (flags->dump && !flags->recording.force && std::filesystem::exists(flags->dump_dir))
    return data_error(flags->dump_dir + " exists already: use --force to replace it, or another name");
  auto recording = Recording::start(flags->recording);
  if (!recording) return tl::unexpected(recording.error());
  recording->record_meta(meta_key::kToolVersion, std::string(kVersion));
  if (!flags->quiet) announce(*config);
  const InterruptGuard interrupt;
  TrainOptions options;
  options.dump_attention = flags->dump;
  auto result = train(*config, make_hooks(*config, flags->quiet), options);
  if (!result) {
    recording->discard();
    return tl::unexpected(result.error());
  }
  const Status finished = finish(*recording, flags->quiet);
  warn_about(*recording, *result);
  if (!finished) return tl::unexpected(finished.error());
  std::optional<Report> report;
  if (result->end == RunEnd::kStalled || (flags->diagnose && result->end == RunEnd::kCompleted)) {
    auto made = report_of(*recording, flags->quiet);
    if (!made) return tl::unexpected(made.error());
    report = std::move(*made);
  }
  print_result(*result, report, *flags);
  if (flags->dump) {
    if (auto ok = write_dump(*flags, *config, *result); !ok) {
      print_error(ok.error());  // behind the result, which stands
      return exit_code(ok.error().kind);
    }
  }
  say_next(*flags, report, config->fault.id != FaultId::kNone || !config->mutations.empty());
  return code_of(result->end, report, flags->least);
}

}  // namespace

const Command& train_command() {
  static const Command command = [] {
    Command c{
        "train",
        "run the reference training; record it, and name what went wrong when it stalls",
        "[CONFIG] [flags]",
        {"ringscope train --trace demo.db",
         "ringscope train --tp 2 --cp 2 --sp --seq-length 512 --train-iters 50 --trace run.db --diagnose",
         "ringscope train --fault ring-early-exit:rank=2,step=3", "ringscope train --cp 4 --sites",
         "ringscope train --cp 4 --mutate 'drop@ring.kv_send:rank=1,step=2,layer=0' --diagnose",
         "ringscope train config.json --turns 7 --json > steps.json"},
        {{"trace", "DB", "record everything, and leave it in DB (what exists is not replaced)"},
         {"diagnose", "", "diagnose the finished run; the exit code is the verdict's"},
         fail_on_option(),
         {"force", "", "replace an existing trace"},
         {"keep-spool", "", "keep DB.spool, the raw recording"},
         {"flight", "", "keep the newest records of every thread alone (so it is without --trace and --diagnose)"},
         {"dump-attention", "L,S", "leave the attention tensors of layer L, step S in DB.attention (safetensors)"},
         {"sites", "", "list what --mutate can change in this job, and run nothing"},
         {"quiet", "", "no progress on stderr"}},
        1,
        run,
        "A mutation is OP@NAME[:key=value,...]: what happens to which of a rank's operations.\n"
        "  calls     drop twice swap split func=F count=N|half dtype=D redop=OP root=R peer=R comm=tp|cp|dp\n"
        "  kernels   drop twice, or their output: scale=X shift=X zero nan previous input\n"
        "  records   drop early stale never       waits  drop stale stream=compute|cp|dp\n"
        "  uploads   offset=K next_rank restart halves layout=contiguous|zigzag duplicate\n"
        "  creations swap                         any    exit kill hang pause=SECONDS, in front of it\n"
        "  NAME      as --sites lists it, or a pattern with *; keys: rank=1|0-3|1+3 step=2|2-|1-3 microbatch\n"
        "            layer ring_step pass=forward|backward|optimizer kind=call|kernel|record|wait|upload|create\n"
        "            n (the n-th match of each rank, from 0)\n"
        "CONFIG is a JSON file; its keys are the flags' names with underscores. Without layout, model and config the\n"
        "small default job runs: eight ranks, tp 2 x cp 2 x dp 2. As soon as one parallel size is named, the others\n"
        "are 1. Exit codes: 0 ran to its end, 1 stalled (or findings, with --diagnose), 2 wrong usage, 3 files,\n"
        "4 with --diagnose: undecided, or nothing found and evidence is missing; 130 interrupted."};
    for (const Option& option : config_options()) c.options.push_back(option);
    return c;
  }();
  return command;
}

}  // namespace ringscope::cli
