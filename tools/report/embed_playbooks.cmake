# Writes a .cc file that holds every playbook page: cmake -DPAGES=dir -DOUT=file.cc -P embed_playbooks.cmake
file(GLOB pages ${PAGES}/*.md)
list(SORT pages)
set(text "// Generated from playbooks/*.md.\n#include \"tools/report/playbook.h\"\n\nnamespace ringscope {\nnamespace {\n")
string(APPEND text "constexpr PlaybookPage kPages[] = {\n")
foreach(page ${pages})
  cmake_path(GET page STEM LAST_ONLY id)
  file(READ ${page} content)
  # A raw string may hold 64 KiB at most; pages are a few.
  string(APPEND text "    {\"${id}\", R\"playbook(${content})playbook\"},\n")
endforeach()
string(APPEND text "};\n}  // namespace\n\nstd::span<const PlaybookPage> playbook_pages() { return kPages; }\n\n}  // namespace ringscope\n")
file(WRITE ${OUT} "${text}")
