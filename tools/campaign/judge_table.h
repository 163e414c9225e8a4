// The judge's table: what may be found when an operation changes something of a class and the run comes out in a certain
// way. Written from the catalogue of findings alone, before any finding is looked at; `faults campaign --table` prints it.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/fault/mutation.h"
#include "tools/campaign/site_class.h"

namespace ringscope::campaign {

// What came of a mutant beside its twin: the first that applies.
enum class Effect : uint8_t {
  kHang,     // the run stalled
  kExit,     // a rank left, and the others came to their end
  kCorrupt,  // a bit of a loss, a gradient norm or a parameter of any rank differs
  kOrder,    // a needed edge is gone, though all bits agree
  kHarmless
};
inline constexpr int kEffects = 5;
const char* name(Effect);

// Under which condition a row holds. What is measured is measured on values, never on findings.
enum class When : uint8_t {
  kAlways,
  kSameGroup,     // swap: both calls are of one group
  kTwoGroups,     // swap: of two
  kUnlike,        // the same call is another one elsewhere: of another member, step or replica group
  kUnlikeLayers,  // likewise, of whatever layer
  kUnwritten,     // memory that nothing wrote is read
  kCopies,        // ranks that hold copies end with other bits (measured)
  kNonFinite,     // a loss or a gradient norm is no finite number (measured)
  kTransfers      // the job has ring hops, which the ranks that wait may be waiting in
};
const char* name(When);

enum class Who : uint8_t {
  kChanged,  // the ranks that were changed
  kOrNobody  // the same; what was changed is mixed over ranks before it is recorded, so that naming nobody is right too
};

struct TableRow {
  std::vector<MutationOp> ops;
  std::vector<SiteClass> classes;  // empty = any
  Effect effect = Effect::kHang;
  When when = When::kAlways;
  std::string_view value;             // of the operation; "" = any
  std::vector<std::string_view> ids;  // empty = it shows, but no finding has a name for it
  bool counts = true;                 // hang: a verdict is due where it can be decided; corrupt: it is visible
  Who who = Who::kChanged;
};
std::span<const TableRow> judge_table();

// The table for people.
std::string judge_table_text();

}  // namespace ringscope::campaign
