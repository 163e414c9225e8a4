// "Did you mean": the known word closest to an unknown one.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace ringscope {

// Insertions, deletions, substitutions and swaps of neighbours that turn one word into the other (ASCII).
int edit_distance(std::string_view a, std::string_view b);

// "" when nothing is near: more than a third of the longer word would have to change. A known word that
// begins with the unknown one (at least three letters) counts as near.
std::string_view nearest_word(std::string_view word, std::span<const std::string_view> known);

// "; did you mean 'X'?" or "" for the end of a sentence.
std::string did_you_mean(std::string_view word, std::span<const std::string_view> known);

}  // namespace ringscope
