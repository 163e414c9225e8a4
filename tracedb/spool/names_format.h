// Layout of an entry in a process-<token>.names file, shared by its writer and its reader.
#pragma once

#include <cstdint>
#include <string_view>

namespace ringscope {

struct NameEntry {
  uint32_t id, bytes, check, reserved;
};
static_assert(sizeof(NameEntry) == 16);

uint32_t name_check(uint32_t id, std::string_view text);

}  // namespace ringscope
