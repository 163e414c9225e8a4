// Strongly connected components of a directed graph (Tarjan), without recursion: a chain of waits may be as long as the
// job has ranks.
#pragma once

#include <vector>

namespace ringscope {

// edges[v] lists where v points to. Returns the component of every node; components are numbered from 0.
std::vector<int> strong_components(const std::vector<std::vector<int>>& edges);

}  // namespace ringscope
