#include "tracedb/tensorfile/safetensors.h"

#include <fcntl.h>
#include <unistd.h>
#include <algorithm>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string_view>

namespace ringscope {
namespace {

using Json = nlohmann::json;
constexpr uint64_t kMaxHeader = 100'000'000;  // the format's own limit

struct TypeName {
  const char* name;
  DType type;
};
constexpr TypeName kTypes[] = {{"F32", DType::kF32}, {"F64", DType::kF64}, {"BF16", DType::kBF16},
                               {"I32", DType::kI32}, {"I64", DType::kI64}, {"U8", DType::kU8}};

tl::unexpected<Error> bad(const std::string& path, const std::string& what) {
  return data_error("'" + path + "': " + what);
}

template <class T, class Out>
void widen(const char* data, int64_t count, std::vector<Out>& out) {
  out.resize(count);
  for (int64_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, data + i * sizeof(T), sizeof(T));
    out[i] = Out(value);
  }
}

void read_values(const char* data, int64_t count, FileTensor& t) {
  switch (t.dtype) {
    case DType::kF32: widen<float>(data, count, t.real); break;
    case DType::kF64: widen<double>(data, count, t.real); break;
    case DType::kI32: widen<int32_t>(data, count, t.integer); break;
    case DType::kI64: widen<int64_t>(data, count, t.integer); break;
    case DType::kBF16: {
      std::vector<int64_t> bits;
      widen<uint16_t>(data, count, bits);
      for (int64_t b : bits) t.real.push_back(std::bit_cast<float>(uint32_t(b) << 16));
      break;
    }
    default: widen<uint8_t>(data, count, t.integer);
  }
}

struct Entry {
  std::string name;
  FileTensor tensor;
  uint64_t begin = 0, end = 0;
  int64_t count = 1;
};

// One entry of the header, checked against the bytes that follow it.
Result<Entry> read_entry(const std::string& path, const std::string& name, const Json& json, uint64_t data_bytes) {
  const auto wrong = [&](const std::string& what) { return bad(path, "tensor '" + name + "': " + what); };
  Entry entry;
  entry.name = name;
  if (!json.is_object() || !json.contains("dtype") || !json["dtype"].is_string() || !json.contains("shape") ||
      !json["shape"].is_array() || !json.contains("data_offsets") || !json["data_offsets"].is_array() ||
      json["data_offsets"].size() != 2)
    return wrong("the header entry is not {dtype, shape, data_offsets}");
  const std::string type = json["dtype"];
  bool known = false;
  for (const TypeName& t : kTypes)
    if (type == t.name) entry.tensor.dtype = t.type, known = true;
  if (!known) return wrong("dtype " + type + " is not read by this version");
  for (const Json& extent : json["shape"]) {
    if (!extent.is_number_unsigned() || extent.get<uint64_t>() > (uint64_t(1) << 40)) return wrong("a bad shape");
    const int64_t n = extent.get<int64_t>();
    entry.tensor.shape.push_back(n);
    if (n != 0 && entry.count > int64_t(data_bytes) / n + 1) return wrong("the shape is larger than the file");
    entry.count *= n;
  }
  for (const Json& offset : json["data_offsets"])
    if (!offset.is_number_unsigned()) return wrong("bad data_offsets");
  entry.begin = json["data_offsets"][0];
  entry.end = json["data_offsets"][1];
  if (entry.begin > entry.end || entry.end > data_bytes)
    return wrong("its data lies outside the file, which is truncated or damaged");
  if (entry.end - entry.begin != uint64_t(entry.count) * uint64_t(size_of(entry.tensor.dtype)))
    return wrong("shape and dtype do not fit its " + std::to_string(entry.end - entry.begin) + " bytes");
  return entry;
}

}  // namespace

Result<FileTensors> read_safetensors(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return data_error("cannot open '" + path + "': " + std::strerror(errno));
  const int64_t size = file.tellg();
  if (size < 0 || size > (int64_t(1) << 46)) return bad(path, "not a regular file");
  file.seekg(0);
  uint64_t header_bytes = 0;
  if (size < 8) return bad(path, size == 0 ? "the file is empty" : "too short for a safetensors file");
  file.read(reinterpret_cast<char*>(&header_bytes), 8);
  if (header_bytes > kMaxHeader || header_bytes > uint64_t(size) - 8)
    return bad(path, "the header is longer than the file: truncated, or not a safetensors file");
  std::string header(header_bytes, '\0');
  file.read(header.data(), int64_t(header_bytes));
  const Json json = Json::parse(header, nullptr, false);
  if (json.is_discarded() || !json.is_object()) return bad(path, "the header is not JSON: not a safetensors file");

  std::string data(uint64_t(size) - 8 - header_bytes, '\0');
  file.read(data.data(), int64_t(data.size()));
  if (!file) return bad(path, "reading failed");
  std::vector<Entry> entries;
  for (const auto& [name, value] : json.items()) {
    if (name == "__metadata__") continue;
    auto entry = read_entry(path, name, value, data.size());
    if (!entry) return tl::unexpected(entry.error());
    entries.push_back(std::move(*entry));
  }
  // An empty tensor begins where its neighbour does, and comes before it.
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.begin != b.begin ? a.begin < b.begin : a.end < b.end; });
  FileTensors out;
  uint64_t last_end = 0;
  for (Entry& entry : entries) {
    if (entry.begin < last_end) return bad(path, "tensor '" + entry.name + "' overlaps another");
    if (entry.begin > last_end)
      return bad(path,
                 std::to_string(entry.begin - last_end) + " bytes before tensor '" + entry.name + "' belong to none");
    last_end = entry.end;
    read_values(data.data() + entry.begin, entry.count, entry.tensor);
    out.emplace(std::move(entry.name), std::move(entry.tensor));
  }
  if (last_end != data.size())
    return bad(path, std::to_string(data.size() - last_end) + " bytes at the end belong to no tensor");
  return out;
}

namespace {

// Round to nearest, ties to even, as hardware does; a NaN stays one.
uint16_t to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return uint16_t(bits >> 16 | 0x40);
  return uint16_t((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

void append_values(const FileTensor& t, std::string& data) {
  const auto put = [&](auto value) { data.append(reinterpret_cast<const char*>(&value), sizeof value); };
  for (double v : t.real) {
    if (t.dtype == DType::kF64) put(v);
    else if (t.dtype == DType::kBF16) put(to_bf16(float(v)));
    else put(float(v));
  }
  for (int64_t v : t.integer) {
    if (t.dtype == DType::kI32) put(int32_t(v));
    else if (t.dtype == DType::kU8) put(uint8_t(v));
    else put(v);
  }
}

const char* type_name(DType type) {
  for (const TypeName& t : kTypes)
    if (t.type == type) return t.name;
  return "F32";
}

// All parts, on the disk when it returns true; errno otherwise.
bool write_file(const std::string& path, const std::vector<std::string_view>& parts) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) return false;
  bool good = true;
  for (std::string_view part : parts)
    while (good && !part.empty()) {
      const ssize_t n = ::write(fd, part.data(), std::min<size_t>(part.size(), 1 << 30));
      if (n < 0 && errno == EINTR) continue;
      good = n >= 0;
      if (good) part.remove_prefix(size_t(n));
    }
  good = good && ::fsync(fd) == 0;
  const int saved = errno;
  if (::close(fd) != 0 && good) return false;
  errno = saved;
  return good;
}

}  // namespace

Status write_safetensors(const std::string& path, const FileTensors& tensors) {
  Json header = Json::object();
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    const size_t begin = data.size();
    append_values(tensor, data);
    header[name] = {
        {"dtype", type_name(tensor.dtype)}, {"shape", tensor.shape}, {"data_offsets", {begin, data.size()}}};
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t header_bytes = text.size();
  const std::string temporary = path + ".tmp";
  if (!write_file(temporary, {{reinterpret_cast<const char*>(&header_bytes), 8}, text, data}) ||
      std::rename(temporary.c_str(), path.c_str()) != 0) {
    const std::string why = std::strerror(errno);
    std::remove(temporary.c_str());
    return data_error("cannot write '" + path + "': " + why);
  }
  return {};
}

}  // namespace ringscope
