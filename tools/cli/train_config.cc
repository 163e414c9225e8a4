#include "tools/cli/train_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace ringscope::cli {
namespace {

constexpr uintmax_t kLargestConfig = 16 << 20;

Result<std::string> read_text(const std::string& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) return data_error(path + ": no such file");
  if (std::filesystem::is_directory(status)) return data_error(path + ": is a folder, not a config");
  if (std::filesystem::is_regular_file(status) && std::filesystem::file_size(path, error) > kLargestConfig)
    return data_error(path + ": too large for a config");
  std::ifstream file(path, std::ios::binary);
  if (!file) return data_error(path + ": cannot open: " + std::strerror(errno));
  std::ostringstream text;
  text << file.rdbuf();
  if (file.bad()) return data_error(path + ": cannot read");
  if (text.str().empty()) return data_error(path + ": the file is empty");
  return text.str();
}

bool is_size(std::string_view flag) {
  return flag == "tensor-model-parallel-size" || flag == "pipeline-model-parallel-size" ||
         flag == "context-parallel-size" || flag == "data-parallel-size";
}

}  // namespace

Result<JobConfig> read_config(JobConfig config, const Arguments& args) {
  if (!args.positionals.empty()) {
    auto text = read_text(args.positionals[0]);
    if (!text) return tl::unexpected(text.error());
    if (auto ok = apply_json(config, *text, args.positionals[0]); !ok) return tl::unexpected(ok.error());
  }
  const auto rows = config_flags();
  for (const auto& [flag, value] : args.flags) {
    const auto known = std::find_if(rows.begin(), rows.end(), [&](const FlagRow& row) { return row.name == flag; });
    if (known == rows.end()) continue;
    if (auto ok = apply_flag(config, flag, value); !ok) return tl::unexpected(ok.error());
  }
  return config;
}

Status bring_fault_layout(JobConfig& config) {
  const auto rows = fault_rows();
  const auto row = std::find_if(rows.begin(), rows.end(), [&](const FaultRow& r) { return r.id == config.fault.id; });
  if (row == rows.end()) return {};
  const bool sizes_named = any_size_named(config);
  std::istringstream words{std::string(row->layout)};
  std::vector<std::string> parts;
  for (std::string part; words >> part;) parts.push_back(part);
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string flag = parts[i].substr(2);
    const bool has_value = i + 1 < parts.size() && parts[i + 1].rfind("--", 0) != 0;
    const std::string value = has_value ? parts[++i] : "";
    std::string key = flag;
    std::replace(key.begin(), key.end(), '-', '_');
    if (is_named(config, key) || (is_size(flag) && sizes_named)) continue;
    if (auto ok = apply_flag(config, flag, value); !ok) return ok;
  }
  return {};
}

}  // namespace ringscope::cli
