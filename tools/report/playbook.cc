#include "tools/report/playbook.h"

#include <algorithm>

namespace ringscope {

std::optional<std::string_view> playbook_page(std::string_view id) {
  const std::span<const PlaybookPage> pages = playbook_pages();
  const auto page = std::find_if(pages.begin(), pages.end(), [&](const PlaybookPage& p) { return p.id == id; });
  if (page == pages.end()) return std::nullopt;
  return page->text;
}

}  // namespace ringscope
