// A small job for tests: ranks as host tasks of one sched, each with a device, a stream and a communicator over
// all. Devices and communicators live until the run is over, as the device's contract asks.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/comm/communicator.h"

namespace ringscope::testing {

// Runs the check under free threads and under several seeds of turns.
inline void under_all_runners(const std::function<void(std::function<std::unique_ptr<Sched>()>)>& check) {
  {
    SCOPED_TRACE("free threads");
    check([] { return Sched::free_threads(); });
  }
  for (uint64_t seed : {1, 2, 77}) {
    SCOPED_TRACE("turns, seed " + std::to_string(seed));
    check([seed] { return Sched::turns(seed); });
  }
}

struct HostRank {
  int rank = 0, world = 1;
  std::unique_ptr<Device> device;
  std::shared_ptr<CommWorld> meeting;
  std::unique_ptr<Communicator> comm;                 // over all ranks
  std::vector<std::unique_ptr<Communicator>> others;  // kept until the run is over
  Stream* stream = nullptr;

  Tensor make(int64_t count, DType dtype = DType::kF32) {
    return device->allocate(dtype, {count}, MemCategory::kActivation, "test");
  }
  // value(i) into element i, on the stream.
  Tensor filled(int64_t count, const std::function<double(int64_t)>& value, DType dtype = DType::kF32) {
    Tensor t = make(count, dtype);
    device->launch(*stream, "fill", {}, {t}, [t, value] {
      for (int64_t i = 0; i < t.count(); ++i) {
        if (t.dtype() == DType::kF64) t.data<double>()[i] = value(i);
        else t.data<float>()[i] = float(value(i));
      }
    });
    return t;
  }
  std::vector<double> values(const Tensor& t) { return device->read_back(*stream, t, "test"); }
};

class Job {
 public:
  Job(std::unique_ptr<Sched> sched, int world, CommOptions options = {}) : sched(std::move(sched)) {
    meeting = make_comm_world(*this->sched, options);
    for (int r = 0; r < world; ++r) {
      ranks.push_back(std::make_unique<HostRank>());
      ranks[r]->rank = r;
      ranks[r]->world = world;
      ranks[r]->meeting = meeting;
      ranks[r]->device = std::make_unique<Device>(*this->sched, r, world);
    }
    this->sched->on_stall = [this](const StallSnapshot& seen) { stall = seen; };
  }

  RunEnd run(const std::function<void(HostRank&)>& body) {
    std::vector<int> all;
    for (const auto& rank : ranks) all.push_back(rank->rank);
    for (auto& rank : ranks)
      sched->spawn("rank" + std::to_string(rank->rank) + ".host", [&, all, r = rank.get()] {
        r->stream = &r->device->create_stream("compute");
        r->comm = comm_init(meeting, *r->device, all, Axis::kWorld, "world");
        if (r->comm) body(*r);
      });
    return sched->run();
  }

  // What a role was blocked on when the run stalled; "" = not blocked.
  std::string blocked_on(const std::string& role) const {
    for (const BlockedTask& task : stall.blocked)
      if (task.role == role && !task.idle) return task.what;
    return "";
  }

  std::unique_ptr<Sched> sched;
  std::shared_ptr<CommWorld> meeting;
  std::vector<std::unique_ptr<HostRank>> ranks;
  StallSnapshot stall;
};

}  // namespace ringscope::testing
