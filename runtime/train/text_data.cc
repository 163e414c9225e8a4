#include "runtime/train/text_data.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "runtime/train/builtin_text.h"

namespace ringscope {

Result<TextData> TextData::open(const std::string& path, int64_t seq_length) {
  TextData data;
  if (path.empty()) {
    data.bytes_ = kBuiltinText;
  } else {
    std::error_code error;
    if (std::filesystem::is_directory(path, error)) return data_error("the data file '" + path + "' is a folder");
    std::ifstream file(path, std::ios::binary);
    if (!file)
      return data_error("cannot open the data file '" + path + "': " + std::strerror(errno) +
                        "; --data takes a plain text or binary file");
    std::ostringstream content;
    content << file.rdbuf();
    if (file.bad() || (!file.eof() && file.fail()))
      return data_error("cannot read the data file '" + path + "': is it a directory?");
    data.bytes_ = content.str();
    if (data.bytes_.empty()) return data_error("the data file '" + path + "' is empty");
  }
  if (int64_t(data.bytes_.size()) < seq_length + 1)
    return data_error("the data file '" + (path.empty() ? std::string("(built-in text)") : path) + "' has " +
                      std::to_string(data.bytes_.size()) + " bytes, one sequence needs " +
                      std::to_string(seq_length + 1) + " (--seq-length plus one label): use --seq-length " +
                      std::to_string(data.bytes_.size() - 1) + " or a longer file");
  return data;
}

TextData::Sample TextData::sample(int64_t index, int64_t seq_length) const {
  Sample out;
  const int64_t size = int64_t(bytes_.size());
  for (int64_t t = 0; t < seq_length; ++t) {
    const int64_t at = (index * seq_length + t) % size;
    out.tokens.push_back(static_cast<unsigned char>(bytes_[at]));
    out.labels.push_back(static_cast<unsigned char>(bytes_[(at + 1) % size]));
  }
  return out;
}

}  // namespace ringscope
