// The playbook pages, compiled into the program from playbooks/*.md.
#pragma once

#include <optional>
#include <span>
#include <string_view>

namespace ringscope {

struct PlaybookPage {
  std::string_view id;    // file name without .md: a finding id, "index" or "_template"
  std::string_view text;  // Markdown
};

std::span<const PlaybookPage> playbook_pages();  // sorted by id
std::optional<std::string_view> playbook_page(std::string_view id);

}  // namespace ringscope
