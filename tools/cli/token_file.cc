#include "tools/cli/token_file.h"

#include <fmt/format.h>

#include <algorithm>

#include "tracedb/base/nearest.h"
#include "tracedb/tensorfile/safetensors.h"

namespace ringscope::cli {
namespace {

constexpr std::string_view kNames[] = {"input_ids", "labels", "position_ids", "document_ids", "valid_lengths"};

std::string shape_text(const std::vector<int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ",")); }

class TokenFile {
 public:
  TokenFile(std::string path, std::string prefix, FileTensors tensors)
      : path_(std::move(path)), prefix_(std::move(prefix)), tensors_(std::move(tensors)) {
    // "plain" for "plain." is forgiven.
    if (!prefix_.empty() && !tensors_.contains(prefix_ + "input_ids") && tensors_.contains(prefix_ + ".input_ids"))
      prefix_ += '.';
  }

  // Of shape [batch, length], or [batch] for `per_sample`; the first one read sets batch and length.
  Status read(const char* name, EvalInput& in, std::vector<int64_t>& out, bool per_sample = false) const {
    const auto found = tensors_.find(prefix_ + name);
    if (found == tensors_.end()) return {};
    const FileTensor& tensor = found->second;
    const std::string what = fmt::format("{}: tensor '{}'", path_, found->first);
    if (tensor.shape.size() != (per_sample ? 1 : 2))
      return data_error(fmt::format("{} has shape {}: use {}", what, shape_text(tensor.shape),
                                    per_sample ? "[batch]" : "[batch, length]"));
    if (tensor.dtype != DType::kI64 && tensor.dtype != DType::kI32)
      return data_error(fmt::format("{} is {}: use int64", what, ringscope::name(tensor.dtype)));
    if (in.batch == 0 && !per_sample) in.batch = tensor.shape[0], in.length = tensor.shape[1];
    if (tensor.shape[0] != in.batch || (!per_sample && tensor.shape[1] != in.length))
      return data_error(
          fmt::format("{} has shape {}, input_ids has [{},{}]", what, shape_text(tensor.shape), in.batch, in.length));
    out = tensor.integer;
    return {};
  }

  Status require(const char* name) const {
    if (tensors_.contains(prefix_ + name)) return {};
    std::vector<std::string> names;
    for (const auto& [key, tensor] : tensors_) names.push_back(key);
    return data_error(fmt::format("{}: no tensor '{}{}'; it has {} (choose a prefix with --prefix)", path_, prefix_,
                                  name, names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "))));
  }

  Status refuse_others() const {
    for (const auto& [key, tensor] : tensors_) {
      if (!key.starts_with(prefix_)) continue;
      const std::string_view name = std::string_view(key).substr(prefix_.size());
      if (name.find('.') != std::string_view::npos ||
          std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames))
        continue;
      const std::string near = did_you_mean(name, kNames);
      return usage_error(fmt::format("{}: tensor '{}' is none that eval reads ({}){}", path_, key,
                                     fmt::join(kNames, ", "),
                                     !near.empty() ? near
                                     : name.find("mask") != std::string_view::npos
                                         ? ": attention is causal, padding on the right needs no mask, and "
                                           "document_ids says which tokens see each other"
                                         : ": take it out of the file"));
    }
    return {};
  }

 private:
  std::string path_, prefix_;
  FileTensors tensors_;
};

}  // namespace

Result<EvalInput> read_token_file(const std::string& path, std::string prefix, bool gradients) {
  auto tensors = read_safetensors(path);
  if (!tensors) return tl::unexpected(tensors.error());
  const TokenFile file(path, std::move(prefix), std::move(*tensors));
  EvalInput in;
  in.gradients = gradients;
  if (auto ok = file.require("input_ids"); !ok) return tl::unexpected(ok.error());
  if (auto ok = file.refuse_others(); !ok) return tl::unexpected(ok.error());
  if (auto ok = file.read("input_ids", in, in.input_ids); !ok) return tl::unexpected(ok.error());
  if (in.batch < 1 || in.length < 1) return data_error(fmt::format("{}: input_ids is empty", path));
  if (gradients)
    if (auto ok = file.require("labels"); !ok) return tl::unexpected(ok.error());
  if (auto ok = file.read("labels", in, in.labels); !ok) return tl::unexpected(ok.error());
  if (auto ok = file.read("position_ids", in, in.position_ids); !ok) return tl::unexpected(ok.error());
  if (auto ok = file.read("document_ids", in, in.document_ids); !ok) return tl::unexpected(ok.error());
  if (auto ok = file.read("valid_lengths", in, in.valid_lengths, true); !ok) return tl::unexpected(ok.error());
  if (gradients && std::all_of(in.labels.begin(), in.labels.end(), [](int64_t l) { return l == -100; }))
    return data_error(fmt::format("{}: --grad needs a label, and all are -100", path));
  return in;
}

}  // namespace ringscope::cli
