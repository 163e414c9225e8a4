// ringscope eval: logits, loss and gradients of a checkpoint under any layout.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "runtime/train/train.h"
#include "tools/cli/command.h"
#include "tools/cli/output.h"
#include "tools/cli/train_config.h"
#include "tracedb/tensorfile/safetensors.h"

namespace ringscope::cli {
namespace {

std::string shape_text(const std::vector<int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ",")); }

// One integer tensor [B,S] of the file; missing gives an empty list.
class TokenFile {
 public:
  static Result<TokenFile> open(const std::string& path, std::string prefix) {
    auto tensors = read_safetensors(path);
    if (!tensors) return tl::unexpected(tensors.error());
    TokenFile file;
    file.path_ = path;
    file.tensors_ = std::move(*tensors);
    // "plain" for "plain." is forgiven.
    if (!prefix.empty() && !file.tensors_.contains(prefix + "input_ids") &&
        file.tensors_.contains(prefix + ".input_ids"))
      prefix += '.';
    file.prefix_ = prefix;
    return file;
  }

  Status read(const char* name, bool required, EvalInput& in, std::vector<int64_t>& out) const {
    const auto found = tensors_.find(prefix_ + name);
    if (found == tensors_.end()) {
      if (!required) return {};
      std::vector<std::string> names;
      for (const auto& [key, tensor] : tensors_) names.push_back(key);
      return data_error(fmt::format("{}: no tensor '{}{}'; it has {} (choose a prefix with --prefix)", path_, prefix_,
                                    name, names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "))));
    }
    const FileTensor& tensor = found->second;
    const std::string what = fmt::format("{}: tensor '{}'", path_, found->first);
    if (tensor.shape.size() != 2)
      return data_error(fmt::format("{} has shape {}: use [batch, length]", what, shape_text(tensor.shape)));
    if (tensor.dtype != DType::kI64 && tensor.dtype != DType::kI32)
      return data_error(fmt::format("{} is {}: use int64", what, ringscope::name(tensor.dtype)));
    if (in.batch == 0) in.batch = tensor.shape[0], in.length = tensor.shape[1];
    if (tensor.shape[0] != in.batch || tensor.shape[1] != in.length)
      return data_error(
          fmt::format("{} has shape {}, input_ids has [{},{}]", what, shape_text(tensor.shape), in.batch, in.length));
    out = tensor.integer;
    return {};
  }

 private:
  std::string path_, prefix_;
  FileTensors tensors_;
};

Result<EvalInput> read_input(const Arguments& args) {
  auto file = TokenFile::open(*args.find("tokens"), args.find("prefix").value_or(""));
  if (!file) return tl::unexpected(file.error());
  EvalInput in;
  in.gradients = args.has("grad");
  if (auto ok = file->read("input_ids", true, in, in.input_ids); !ok) return tl::unexpected(ok.error());
  if (in.batch < 1 || in.length < 1) return data_error(fmt::format("{}: input_ids is empty", *args.find("tokens")));
  if (auto ok = file->read("labels", in.gradients, in, in.labels); !ok) return tl::unexpected(ok.error());
  if (auto ok = file->read("position_ids", false, in, in.position_ids); !ok) return tl::unexpected(ok.error());
  if (auto ok = file->read("document_ids", false, in, in.document_ids); !ok) return tl::unexpected(ok.error());
  if (in.gradients && std::all_of(in.labels.begin(), in.labels.end(), [](int64_t l) { return l == -100; }))
    return data_error(fmt::format("{}: --grad needs a label, and all are -100", *args.find("tokens")));
  return in;
}

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

void print_result(const Arguments& args, const EvalInput& in, const HostTensors& tensors) {
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
                {"grad_norm", value(norm)}});
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
  auto in = read_input(args);
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
  print_result(args, *in, result->tensors);
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
         {"tokens", "FILE", "input_ids [B,S], optional labels, position_ids, document_ids"},
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
