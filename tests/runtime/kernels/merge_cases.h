// Two partial results of many rows with ordinary, extreme and empty LSEs, and what their merge is.
#pragma once

#include <limits>
#include <vector>

#include "runtime/oracle/oracle.h"
#include "tests/runtime/kernels/numbers.h"

namespace ringscope::testing {

template <class T>
struct MergeCase {
  int64_t rows, d;
  std::vector<T> o, part_o;
  Numbers lse, part_lse;

  MergeCase(int64_t rows, int64_t d) : rows(rows), d(d), lse(normal(rows, 1)), part_lse(normal(rows, 2)) {
    const Numbers a = normal(rows * d, 3), b = normal(rows * d, 4);
    o.assign(a.begin(), a.end());
    part_o.assign(b.begin(), b.end());
    for (int64_t i = 0; i < rows; ++i) {
      if (i % 5 == 1) make_empty(o, lse, i);
      if (i % 7 == 2) make_empty(part_o, part_lse, i);
      if (i % 11 == 3) lse[i] = 1e4;
      if (i % 13 == 4) part_lse[i] = -1e4;
    }
  }
  oracle::AttentionResult expected() const {
    const Numbers nothing(lse.size(), -std::numeric_limits<double>::infinity());
    return oracle::merge(
        {{Numbers(o.begin(), o.end()), lse, nothing}, {Numbers(part_o.begin(), part_o.end()), part_lse, nothing}}, d);
  }

 private:
  void make_empty(std::vector<T>& values, Numbers& l, int64_t row) const {
    l[row] = -std::numeric_limits<double>::infinity();
    for (int64_t x = 0; x < d; ++x) values[row * d + x] = 0;
  }
};

}  // namespace ringscope::testing
