// ringscope eval: logits, loss and gradients of a checkpoint under any layout.
#include <fmt/format.h>

#include <cmath>

#include "runtime/train/train.h"
#include "tools/cli/command.h"
#include "tools/cli/output.h"
#include "tools/cli/token_file.h"
#include "tools/cli/train_config.h"
#include "tracedb/tensorfile/safetensors.h"

namespace ringscope::cli {
namespace {

FileTensors to_file(const HostTensors& tensors, DType dtype) {
  FileTensors out;
  for (const auto& [name, tensor] : tensors) out[name] = {dtype, tensor.shape, tensor.values, {}};
  return out;
}

std::optional<double> scalar(const HostTensors& tensors, const char* name) {
  const auto found = tensors.find(name);
  if (found == tensors.end() || found->second.values.empty()) return std::nullopt;
  return found->second.values[0];
}

// A result of NaN is a result; who reads only the exit code still has it on the screen.
void warn_of_non_finite(const EvalResult& result, DType dtype) {
  for (const NonFiniteTensor& t : result.non_finite_weights)
    say(fmt::format("warning: the checkpoint's '{}' is not finite: {} NaN and {} infinite of {} values in {}", t.name,
                    t.nan, t.infinite, t.values, name(dtype)));
  if (result.non_finite_out.empty()) return;
  std::vector<std::string> shown;
  for (const NonFiniteTensor& t : result.non_finite_out)
    if (!t.name.starts_with("grad."))
      shown.push_back(t.values == 1 ? t.name
                                    : fmt::format("{} ({} of {} values)", t.name, t.nan + t.infinite, t.values));
  const size_t gradients = result.non_finite_out.size() - shown.size();
  if (gradients > 0) shown.push_back(fmt::format("{} gradient{}", gradients, gradients == 1 ? "" : "s"));
  say(fmt::format("warning: the result is not finite: {}", fmt::join(shown, ", ")));
}

nlohmann::ordered_json non_finite_json(const std::vector<NonFiniteTensor>& tensors) {
  nlohmann::ordered_json out = nlohmann::ordered_json::array();
  for (const NonFiniteTensor& t : tensors)
    out.push_back({{"tensor", t.name}, {"nan", t.nan}, {"infinite", t.infinite}, {"values", t.values}});
  return out;
}

void print_result(const Arguments& args, const EvalInput& in, const EvalResult& result) {
  const HostTensors& tensors = result.tensors;
  const auto loss = scalar(tensors, "loss"), norm = scalar(tensors, "grad_norm");
  const std::string output = *args.find("output");
  if (args.json()) {
    const auto value = [](const std::optional<double>& v) {
      return v && std::isfinite(*v) ? nlohmann::ordered_json(*v) : nlohmann::ordered_json(nullptr);
    };
    print_json({{"schema", "ringscope.eval/1"},
                {"output", output},
                {"tensors", tensors.size()},
                {"batch", in.batch},
                {"length", in.length},
                {"loss", value(loss)},
                {"grad_norm", value(norm)},
                {"non_finite",
                 {{"checkpoint", non_finite_json(result.non_finite_weights)},
                  {"output", non_finite_json(result.non_finite_out)}}}});
    return;
  }
  std::string line = fmt::format("{} tensors of {} x {} tokens in {}", tensors.size(), in.batch, in.length, output);
  if (loss) line += fmt::format("; loss {:.9g}", *loss);
  if (norm) line += fmt::format(", grad_norm {:.9g}", *norm);
  print(line + "\n");
}

Result<int> run(const Arguments& args) {
  for (const char* needed : {"checkpoint", "tokens", "output"})
    if (args.find(needed).value_or("").empty())
      return usage_error(
          fmt::format("eval: --{} is missing: ringscope eval --checkpoint DIR --tokens F.safetensors -o "
                      "OUT.safetensors",
                      needed));
  auto config = read_config(JobConfig(), args);
  if (!config) return tl::unexpected(config.error());
  config->checkpoint = *args.find("checkpoint");
  auto in = read_token_file(*args.find("tokens"), args.find("prefix").value_or(""), args.has("grad"));
  if (!in) return tl::unexpected(in.error());
  TrainHooks hooks;
  auto result = [&] {
    SlowPhase phase("computing", false);
    return evaluate(*config, *in, hooks);
  }();
  if (!result) return tl::unexpected(result.error());
  if (result->end != RunEnd::kCompleted) return internal_error("the evaluation stalled");
  const DType dtype = config->dtype == DType::kF32 ? DType::kF32 : DType::kF64;
  if (auto ok = write_safetensors(*args.find("output"), to_file(result->tensors, dtype)); !ok)
    return tl::unexpected(ok.error());
  warn_of_non_finite(*result, dtype);
  print_result(args, *in, *result);
  return kExitClean;
}

}  // namespace

const Command& eval_command() {
  static const Command command = [] {
    Command c{
        "eval",
        "logits, loss and gradients of a GPT-2 or Llama checkpoint, under any layout",
        "--checkpoint DIR --tokens F.safetensors -o OUT.safetensors [flags]",
        {"ringscope eval --checkpoint llama --tokens inputs.safetensors --prefix plain. --grad -o out.safetensors",
         "ringscope eval --checkpoint gpt2 --tokens in.safetensors --dtype fp64 --cp 4 --cp-layout zigzag -o "
         "out.safetensors"},
        {{"checkpoint", "DIR", "config.json and model.safetensors, Hugging Face names"},
         {"tokens", "FILE", "input_ids [B,S], optional labels, position_ids, document_ids [B,S], valid_lengths [B]"},
         {"prefix", "P", "prefix of these names in the file, for example plain."},
         {"grad", "", "also grad.<parameter> and grad_norm"},
         {"output", "FILE", "the result, a safetensors file", "o"}},
        0,
        run,
        "Tensors are whole and in the original order whatever the layout, in the dtype asked for. Labels are already\n"
        "shifted: labels[b,t] is the target of the logits at t; -100 = none."};
    for (const Option& option : config_options({"Layout", "Communication"})) c.options.push_back(option);
    return c;
  }();
  return command;
}

}  // namespace ringscope::cli
