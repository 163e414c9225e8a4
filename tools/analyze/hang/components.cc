#include "tools/analyze/hang/components.h"

#include <algorithm>

namespace ringscope {

std::vector<int> strong_components(const std::vector<std::vector<int>>& edges) {
  const size_t size = edges.size();
  std::vector<int> component(size, -1), order(size, -1), low(size, 0), path;
  struct Visit {
    int node;
    size_t next = 0;  // edge to follow
  };
  std::vector<Visit> visits;
  int clock = 0, components = 0;
  const auto enter = [&](int v) {
    order[size_t(v)] = low[size_t(v)] = clock++;
    path.push_back(v);
    visits.push_back({v});
  };
  for (size_t start = 0; start < size; ++start) {
    if (order[start] < 0) enter(int(start));
    while (!visits.empty()) {
      const int v = visits.back().node;
      if (visits.back().next < edges[size_t(v)].size()) {
        const int to = edges[size_t(v)][visits.back().next++];
        if (order[size_t(to)] < 0) enter(to);
        else if (component[size_t(to)] < 0) low[size_t(v)] = std::min(low[size_t(v)], order[size_t(to)]);
        continue;
      }
      visits.pop_back();
      if (!visits.empty()) low[size_t(visits.back().node)] = std::min(low[size_t(visits.back().node)], low[size_t(v)]);
      if (low[size_t(v)] != order[size_t(v)]) continue;
      for (int w = -1; w != v;) {
        w = path.back();
        path.pop_back();
        component[size_t(w)] = components;
      }
      ++components;
    }
  }
  return component;
}

}  // namespace ringscope
