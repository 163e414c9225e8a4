// A few ranks in one process, for tests: each gets a device, a stream and a communicator over all.
#pragma once

#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/device/device.h"
#include "runtime/kernels/kernels.h"

namespace ringscope::testing {

struct Rank {
  Device& device;
  Stream& stream;
  Communicator& comm;

  Tensor values(std::vector<double> v, DType type = DType::kF64) {
    Tensor t = device.allocate(type, {int64_t(v.size())}, MemCategory::kActivation, "values");
    kernels::upload(device, stream, "upload", t, std::move(v));
    return t;
  }
  std::vector<double> read(const Tensor& t) { return device.read_back(stream, t, "test"); }
};

struct RunOptions {
  int ranks = 2;
  bool turns = false;
  uint64_t seed = 1;
  CommOptions comm;
  int64_t timeout_ns = 10'000'000'000;
};

// Runs body on every rank; the snapshot is filled when the run stalls.
inline RunEnd run_ranks(const RunOptions& options, const std::function<void(Rank&)>& body,
                        StallSnapshot* snapshot = nullptr, int64_t* logical_end = nullptr) {
  auto sched = options.turns ? Sched::turns(options.seed) : Sched::free_threads();
  auto world = make_comm_world(*sched, options.comm);
  std::vector<std::unique_ptr<Device>> devices;
  std::vector<std::unique_ptr<Communicator>> comms(options.ranks);
  std::vector<int> all(options.ranks);
  std::iota(all.begin(), all.end(), 0);
  for (int r = 0; r < options.ranks; ++r) devices.push_back(std::make_unique<Device>(*sched, r, options.ranks));
  sched->stall_timeout_ns = options.timeout_ns;
  sched->on_stall = [&](const StallSnapshot& s) {
    if (snapshot) *snapshot = s;
  };
  for (int r = 0; r < options.ranks; ++r)
    sched->spawn("rank" + std::to_string(r) + ".host", [&, r] {
      Stream& stream = devices[r]->create_stream("compute");
      comms[r] = comm_init(world, *devices[r], all, Axis::kCp, "cp");
      if (!comms[r]) return;
      Rank rank{*devices[r], stream, *comms[r]};
      body(rank);
      if (logical_end && r == 0) *logical_end = sched->now();
    });
  return sched->run();
}

}  // namespace ringscope::testing
