// Rank coordinates and process groups: mixed-radix arithmetic over the four axes.
#include <fmt/format.h>

#include <algorithm>

#include "runtime/layout/layout.h"
#include "tracedb/base/check.h"

namespace ringscope {
namespace {

// Above every machine that exists, and far below overflow of the products.
constexpr int64_t kMaxWorld = 1 << 20;

constexpr std::array<Axis, 4> kAxes{Axis::kTp, Axis::kCp, Axis::kDp, Axis::kPp};

int& part(Coord& c, Axis axis) {
  switch (axis) {
    case Axis::kTp: return c.tp;
    case Axis::kCp: return c.cp;
    case Axis::kDp: return c.dp;
    default: return c.pp;
  }
}

// The plain axes that vary inside a group of `axis`.
std::vector<Axis> varying(Axis axis) {
  switch (axis) {
    case Axis::kWorld: return {Axis::kTp, Axis::kCp, Axis::kDp, Axis::kPp};
    case Axis::kTpCp: return {Axis::kTp, Axis::kCp};
    case Axis::kDpCp: return {Axis::kDp, Axis::kCp};
    default: return {axis};
  }
}

// "tp-pp-cp-dp" as axes, smallest stride first; empty when it is not all four, once each.
std::vector<Axis> parse_order(std::string_view order) {
  std::vector<Axis> axes;
  for (size_t begin = 0; begin <= order.size();) {
    const size_t end = std::min(order.find('-', begin), order.size());
    const std::string_view word = order.substr(begin, end - begin);
    const auto axis = std::find_if(kAxes.begin(), kAxes.end(), [&](Axis a) { return word == name(a); });
    if (axis == kAxes.end() || std::find(axes.begin(), axes.end(), *axis) != axes.end()) return {};
    axes.push_back(*axis);
    begin = end + 1;
  }
  return axes.size() == kAxes.size() ? axes : std::vector<Axis>();
}

}  // namespace

Result<Mesh> Mesh::make(int tp, int cp, int dp, int pp, std::string_view order) {
  const std::array<int, 4> sizes{tp, cp, dp, pp};
  static constexpr std::array<const char*, 4> kKeys{"tensor_model_parallel_size", "context_parallel_size",
                                                    "data_parallel_size", "pipeline_model_parallel_size"};
  int64_t world = 1;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] < 1) return usage_error(fmt::format("{} is {}: use 1 or more", kKeys[i], sizes[i]));
    world *= sizes[i];
    if (world > kMaxWorld)
      return usage_error(fmt::format("{} {} makes more than {} ranks in all: lower it", kKeys[i], sizes[i], kMaxWorld));
  }
  const std::vector<Axis> axes = parse_order(order);
  if (axes.empty())
    return usage_error(
        fmt::format("order '{}' must name tp, cp, dp and pp once each, smallest stride first: use "
                    "tp-cp-dp-pp or tp-pp-cp-dp",
                    order));
  Mesh mesh;
  mesh.size_ = sizes;
  mesh.order_ = order;
  int stride = 1;
  for (Axis axis : axes) {
    mesh.stride_[size_t(axis)] = stride;
    stride *= mesh.size_[size_t(axis)];
  }
  return mesh;
}

int Mesh::size(Axis axis) const {
  RS_CHECK(axis != Axis::kUnknown, "an axis of the mesh");
  int product = 1;
  for (Axis a : varying(axis)) product *= size_[size_t(a)];
  return product;
}

int Mesh::world() const { return size(Axis::kWorld); }

Coord Mesh::coord(int rank) const {
  RS_CHECK(rank >= 0 && rank < world(), "rank lies in the mesh");
  Coord c;
  for (Axis axis : kAxes) part(c, axis) = rank / stride_[size_t(axis)] % size_[size_t(axis)];
  return c;
}

int Mesh::rank(const Coord& c) const {
  return c.tp * stride_[0] + c.cp * stride_[1] + c.dp * stride_[2] + c.pp * stride_[3];
}

// Group order is ascending global rank: the axis with the smaller stride runs faster.
std::vector<int> Mesh::group(Axis axis, int rank_of) const {
  Coord c = coord(rank_of);
  const std::vector<Axis> axes = varying(axis);
  for (Axis a : axes) part(c, a) = 0;
  std::vector<int> ranks{rank(c)};
  for (Axis a : axes) {
    const size_t before = ranks.size();
    for (int i = 1; i < size_[size_t(a)]; ++i)
      for (size_t k = 0; k < before; ++k) ranks.push_back(ranks[k] + i * stride_[size_t(a)]);
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

std::vector<std::vector<int>> Mesh::groups(Axis axis) const {
  std::vector<std::vector<int>> all;
  for (int r = 0; r < world(); ++r) {
    std::vector<int> members = group(axis, r);
    if (members.front() == r) all.push_back(std::move(members));
  }
  return all;
}

const std::vector<Axis>& Mesh::creation_order() {
  static const std::vector<Axis> order{Axis::kTp, Axis::kCp, Axis::kDp, Axis::kPp, Axis::kTpCp, Axis::kDpCp};
  return order;
}

std::string Mesh::describe() const {
  std::string text = fmt::format("{} ranks: tp {} x cp {} x dp {} x pp {}, order {}\n", world(), size_[0], size_[1],
                                 size_[2], size_[3], order_);
  for (int r = 0; r < world(); ++r) {
    const Coord c = coord(r);
    text += fmt::format("rank {:>3}  tp {} cp {} dp {} pp {}\n", r, c.tp, c.cp, c.dp, c.pp);
  }
  for (Axis axis : creation_order()) {
    if (size(axis) == 1) continue;
    text += fmt::format("{:<6}", name(axis));
    for (const std::vector<int>& members : groups(axis)) text += fmt::format(" {{{}}}", fmt::join(members, ","));
    text += '\n';
  }
  return text;
}

}  // namespace ringscope
