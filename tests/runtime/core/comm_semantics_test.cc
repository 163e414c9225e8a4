// NCCL's semantics, including the bad ones: what hangs, what corrupts, and what the emulated link costs.
#include <cmath>

#include "job.h"
#include "runtime/comm/fifo.h"

namespace ringscope {
namespace {

using testing::HostRank;
using testing::Job;
using testing::under_all_runners;

constexpr int64_t kSlotFloats = kSlotBytes / 4;

void under_runners_and_slots(const std::vector<int>& all_slots,
                             const std::function<void(std::function<std::unique_ptr<Sched>()>, int)>& check) {
  for (int slots : all_slots)
    under_all_runners([&](auto make) {
      SCOPED_TRACE("slots " + std::to_string(slots));
      check(make, slots);
    });
}

// Every rank first sends, then receives: fine while the slots take the message, a deadlock without them.
RunEnd send_circle(Job& job, int64_t count) {
  return job.run([&](HostRank& r) {
    Tensor t = r.make(count), got = r.make(count);
    r.comm->send(*r.stream, t, (r.rank + 1) % r.world, "send");
    r.comm->recv(*r.stream, got, (r.rank + r.world - 1) % r.world, "recv");
    (void)r.device->synchronize(*r.stream);
  });
}

TEST(CommSemantics, AnUngroupedCircleOfSendsNeedsSlots) {
  under_all_runners([](auto make) {
    {
      Job job(make(), 3, CommOptions{8, {}});
      EXPECT_EQ(send_circle(job, 8 * kSlotFloats), RunEnd::kCompleted);  // fits exactly
    }
    {
      Job job(make(), 3, CommOptions{8, {}});
      EXPECT_EQ(send_circle(job, 8 * kSlotFloats + 1), RunEnd::kStalled);  // one byte too many to be a "clean" size
    }
    Job job(make(), 3, CommOptions{0, {}});
    EXPECT_EQ(send_circle(job, 1), RunEnd::kStalled);
    EXPECT_FALSE(job.stall.by_time);
    for (int r = 0; r < 3; ++r) {
      EXPECT_EQ(job.blocked_on("rank" + std::to_string(r) + ".compute"), "send");
      EXPECT_EQ(job.blocked_on("rank" + std::to_string(r) + ".host"), "a stream to drain");
    }
  });
}

TEST(CommSemantics, MissingBytesWait) {
  under_runners_and_slots({0, 1, 8}, [](auto make, int slots) {
    Job job(make(), 2, CommOptions{slots, {}});
    bool sent = false;
    EXPECT_EQ(job.run([&](HostRank& r) {
      Tensor t = r.filled(5, [](int64_t i) { return double(i); });
      if (r.rank == 0) {
        r.comm->send(*r.stream, t.rows(0, 3), 1, "send");
        sent = r.device->synchronize(*r.stream);
      } else {
        r.comm->recv(*r.stream, t, 0, "recv");
        EXPECT_FALSE(r.device->synchronize(*r.stream));
      }
    }),
              RunEnd::kStalled);
    EXPECT_TRUE(sent);  // the sender never learns: its bytes were taken
    EXPECT_EQ(job.blocked_on("rank1.compute"), "recv");
    EXPECT_EQ(job.blocked_on("rank0.host"), "");
  });
}

TEST(CommSemantics, SurplusStaysForTheSuccessor) {
  under_runners_and_slots({1, 8}, [](auto make, int slots) {
    Job job(make(), 2, CommOptions{slots, {}});
    EXPECT_EQ(job.run([&](HostRank& r) {
      if (r.rank == 0) {
        Tensor t = r.filled(5, [](int64_t i) { return double(i); });
        r.comm->send(*r.stream, t, 1, "send");
        EXPECT_TRUE(r.device->synchronize(*r.stream));
      } else {
        Tensor first = r.make(3), second = r.make(2);
        r.comm->recv(*r.stream, first, 0, "recv");
        r.comm->recv(*r.stream, second, 0, "recv");
        EXPECT_EQ(r.values(first), (std::vector<double>{0, 1, 2}));
        EXPECT_EQ(r.values(second), (std::vector<double>{3, 4}));
      }
    }),
              RunEnd::kCompleted);
  });
}

TEST(CommSemantics, SurplusBlocksARendezvousSender) {
  under_all_runners([](auto make) {
    Job job(make(), 2, CommOptions{0, {}});
    EXPECT_EQ(job.run([&](HostRank& r) {
      Tensor t = r.filled(5, [](int64_t i) { return double(i); });
      if (r.rank == 0) r.comm->send(*r.stream, t, 1, "send");
      else r.comm->recv(*r.stream, t.rows(0, 3), 0, "recv");
      EXPECT_EQ(r.device->synchronize(*r.stream), r.rank == 1);
    }),
              RunEnd::kStalled);
    EXPECT_EQ(job.blocked_on("rank0.compute"), "send");
    EXPECT_EQ(job.blocked_on("rank1.compute"), "");
  });
}

TEST(CommSemantics, SeveralTransfersWithOnePeerGoInCallOrder) {
  under_runners_and_slots({0, 1, 8}, [](auto make, int slots) {
    Job job(make(), 2, CommOptions{slots, {}});
    EXPECT_EQ(job.run([&](HostRank& r) {
      Tensor a = r.filled(4, [](int64_t) { return 1.0; }), b = r.filled(9, [](int64_t) { return 2.0; });
      if (r.rank == 0) {
        CommGroup group(*r.comm);
        r.comm->send(*r.stream, a, 1, "a");
        r.comm->send(*r.stream, b, 1, "b");
      } else {
        Tensor x = r.make(4), y = r.make(9);
        {
          CommGroup group(*r.comm);
          r.comm->recv(*r.stream, x, 0, "x");
          r.comm->recv(*r.stream, y, 0, "y");
        }
        EXPECT_EQ(r.values(x), std::vector<double>(4, 1));
        EXPECT_EQ(r.values(y), std::vector<double>(9, 2));
      }
      EXPECT_TRUE(r.device->synchronize(*r.stream));
    }),
              RunEnd::kCompleted);
  });
}

// Ranks that call different collectives: bytes are matched, meaning is not.
TEST(CommSemantics, AnotherCollectiveHangsOrCorruptsButNeverComplains) {
  under_runners_and_slots({0, 1, 8}, [](auto make, int slots) {
    Job job(make(), 2, CommOptions{slots, {}});
    EXPECT_EQ(job.run([&](HostRank& r) {
      Tensor t = r.filled(8, [&](int64_t i) { return double(r.rank + i); }), whole = r.make(16);
      if (r.rank == 0) r.comm->all_reduce(*r.stream, t, t, RedOp::kSum, "sum");  // sends 4 + 4
      else r.comm->broadcast(*r.stream, whole, 0, "b");                          // wants 16
      (void)r.device->synchronize(*r.stream);
    }),
              RunEnd::kStalled);
    EXPECT_NE(job.blocked_on("rank1.compute"), "");
    EXPECT_FALSE(job.ranks[0]->comm->async_error().has_value());
  });
}

TEST(CommSemantics, ACountMismatchWithSlotsCorruptsTheSuccessor) {
  under_all_runners([](auto make) {
    Job job(make(), 2, CommOptions{8, {}});
    EXPECT_EQ(job.run([&](HostRank& r) {
      Tensor t = r.filled(12, [&](int64_t i) { return double(r.rank == 0 ? i : 100 + i); });
      const int64_t n = r.rank == 0 ? 6 : 4;  // root sends 6, the other takes 4
      r.comm->broadcast(*r.stream, t.rows(0, n), 0, "b");
      r.comm->broadcast(*r.stream, t.rows(n, n + 2), 0, "b");
      const auto got = r.values(t);
      if (r.rank == 1) {
        EXPECT_EQ(got[4], 4);  // what was left of the first, not 6
        EXPECT_EQ(got[5], 5);
        EXPECT_EQ(got[6], 106);  // nothing outside the own buffer
      }
    }),
              RunEnd::kCompleted);
  });
}

// Elements cut in pieces by a mismatch: a reduction must still stay inside its memory.
TEST(CommSemantics, AReductionSurvivesMisalignedBytes) {
  under_runners_and_slots({1, 8}, [](auto make, int slots) {
    Job job(make(), 2, CommOptions{slots, {}});
    const RunEnd end = job.run([&](HostRank& r) {
      Tensor odd = r.device->allocate(DType::kU8, {6}, MemCategory::kActivation, "odd");
      Tensor t = r.filled(
          8, [](int64_t i) { return double(i); }, DType::kF64);
      if (r.rank == 0) r.comm->broadcast(*r.stream, odd, 0, "odd");
      r.comm->all_reduce(*r.stream, t, t, RedOp::kSum, "sum");
      r.comm->all_reduce(*r.stream, t, t, RedOp::kSum, "sum");
      (void)r.device->synchronize(*r.stream);
    });
    EXPECT_TRUE(end == RunEnd::kStalled || end == RunEnd::kCompleted);
  });
}

TEST(CommSemantics, ACollectiveAndATransferDoNotMix) {
  under_runners_and_slots({0, 1, 8}, [](auto make, int slots) {
    Job job(make(), 2, CommOptions{slots, {}});
    EXPECT_EQ(job.run([&](HostRank& r) {
      Stream& side = r.device->create_stream("side");
      Tensor t = r.filled(4, [&](int64_t) { return 1.0; });
      Tensor p = r.filled(4, [&](int64_t) { return double(7 + r.rank); });
      EXPECT_TRUE(r.device->synchronize(*r.stream));
      {
        CommGroup group(*r.comm);
        if (r.rank == 0) r.comm->send(side, p, 1, "send");
        else r.comm->recv(side, p, 0, "recv");
      }
      r.comm->all_reduce(*r.stream, t, t, RedOp::kSum, "sum");
      EXPECT_EQ(r.values(t)[0], 2);
      EXPECT_TRUE(r.device->synchronize(side));
      EXPECT_EQ(r.values(p)[0], 7);
    }),
              RunEnd::kCompleted);
  });
}

TEST(CommSemantics, RanksThatCreateGroupsInDifferentOrdersHang) {
  under_all_runners([](auto make) {
    Job job(make(), 2);
    EXPECT_EQ(job.run([&](HostRank& r) {
      Communicator* world = r.comm.get();
      if (r.rank == 0) r.others.push_back(comm_init(r.meeting, *r.device, {0, 1}, Axis::kTp, "tp[0,1]"));
      else r.others.push_back(comm_init(r.meeting, *r.device, {1, 0}, Axis::kTp, "tp[1,0]"));
      EXPECT_EQ(r.others.back(), nullptr);
      EXPECT_NE(world, nullptr);
    }),
              RunEnd::kStalled);
    EXPECT_NE(job.blocked_on("rank0.host"), "");
    EXPECT_NE(job.blocked_on("rank1.host"), "");
  });
}

TEST(CommSemantics, ARankThatExitsLeavesItsPeersBlocked) {
  under_runners_and_slots({0, 8}, [](auto make, int slots) {
    Job job(make(), 3, CommOptions{slots, {}});
    EXPECT_EQ(job.run([&](HostRank& r) {
      if (r.rank == 1) return r.device->kill_workers();
      Tensor t = r.filled(4, [&](int64_t) { return 1.0; });
      r.comm->all_reduce(*r.stream, t, t, RedOp::kSum, "sum");
      EXPECT_FALSE(r.device->synchronize(*r.stream));
    }),
              RunEnd::kStalled);
    EXPECT_EQ(job.blocked_on("rank0.compute"), "all_reduce");
    EXPECT_EQ(job.blocked_on("rank2.compute"), "all_reduce");
    EXPECT_EQ(job.blocked_on("rank1.compute"), "");
  });
}

TEST(CommSemantics, AbortWakesAllMembers) {
  under_runners_and_slots({0, 8}, [](auto make, int slots) {
    Job job(make(), 3, CommOptions{slots, {}});
    EXPECT_EQ(job.run([&](HostRank& r) {
      Tensor t = r.filled(4, [&](int64_t) { return 1.0; });
      if (r.rank == 1) {
        EXPECT_TRUE(job.sched->sleep_until(job.sched->now() + 5'000'000));
        r.comm->abort();
      } else {
        r.comm->all_reduce(*r.stream, t, t, RedOp::kSum, "sum");
        EXPECT_FALSE(r.device->synchronize(*r.stream));
      }
      ASSERT_TRUE(r.comm->async_error().has_value());
      r.comm->all_reduce(*r.stream, t, t, RedOp::kSum, "later");
      EXPECT_FALSE(r.device->synchronize(*r.stream));
    }),
              RunEnd::kCompleted);
  });
}

// --- the emulated link, in logical time: every turn costs a nanosecond, so times are exact to a few hundred -------

constexpr int64_t kTurnsSlackNs = 2'000;

int64_t transfer_time(int64_t bytes, LinkModel link, int slots, int messages = 1) {
  Job job(Sched::turns(1), 2, CommOptions{slots, link});
  int64_t begin = 0, end = 0;
  EXPECT_EQ(job.run([&](HostRank& r) {
    Tensor t = r.device->allocate(DType::kU8, {bytes}, MemCategory::kActivation, "t");
    if (r.rank == 0) begin = job.sched->now();
    for (int m = 0; m < messages; ++m) {
      if (r.rank == 0) r.comm->send(*r.stream, t, 1, "send");
      else r.comm->recv(*r.stream, t, 0, "recv");
    }
    EXPECT_TRUE(r.device->synchronize(*r.stream));
    if (r.rank == 1) end = job.sched->now();
  }),
            RunEnd::kCompleted);
  return end - begin;
}

TEST(LinkTimes, LatencyPlusBytesOverBandwidth) {
  const LinkModel link{.latency_us = 100, .gbytes_per_s = 1};
  for (int slots : {0, 8}) {
    EXPECT_NEAR(transfer_time(1000, link, slots), 100'000 + 1000, kTurnsSlackNs);
    EXPECT_NEAR(transfer_time(4 * kSlotBytes, link, slots), 100'000 + 4 * kSlotBytes, kTurnsSlackNs);
  }
  // Messages queue behind each other on the link, but share the latency.
  EXPECT_NEAR(transfer_time(100'000, link, 8, 3), 100'000 + 300'000, kTurnsSlackNs);
  // One slot: the next segment starts when the one before has arrived.
  EXPECT_NEAR(transfer_time(3 * kSlotBytes, link, 1), 3 * (100'000 + kSlotBytes), kTurnsSlackNs);
  EXPECT_LT(transfer_time(4 * kSlotBytes, LinkModel{}, 8), kTurnsSlackNs);
}

TEST(LinkTimes, JitterComesFromTheSeed) {
  const auto time = [](uint64_t seed) {
    return transfer_time(1000, {.latency_us = 100, .gbytes_per_s = 1, .jitter_us = 50, .seed = seed}, 8);
  };
  EXPECT_EQ(time(1), time(1));
  EXPECT_NE(time(1), time(2));
  for (uint64_t seed = 0; seed < 10; ++seed) {
    EXPECT_GE(time(seed), 101'000);
    EXPECT_LT(time(seed), 151'000 + kTurnsSlackNs);
  }
}

// A rank whose receive waits for the link must not hold up its send in the same group.
TEST(LinkTimes, ASendGoesOnWhileTheReceiveWaitsForTheLink) {
  Job job(Sched::turns(1), 3, CommOptions{1, {.latency_us = 1000, .gbytes_per_s = 0}});
  int64_t middle_done = 0;
  EXPECT_EQ(job.run([&](HostRank& r) {
    Tensor two = r.device->allocate(DType::kU8, {2 * kSlotBytes}, MemCategory::kActivation, "two");
    Tensor one = r.device->allocate(DType::kU8, {8}, MemCategory::kActivation, "one");
    if (r.rank == 0) {
      EXPECT_TRUE(job.sched->sleep_until(500'000));
      r.comm->send(*r.stream, one, 1, "late");  // arrives at 1.5 ms
      EXPECT_TRUE(r.device->synchronize(*r.stream));
    } else if (r.rank == 1) {
      {
        CommGroup group(*r.comm);
        r.comm->recv(*r.stream, one, 0, "late");
        r.comm->send(*r.stream, two, 2, "stream");
      }
      EXPECT_TRUE(r.device->synchronize(*r.stream));
    } else {
      r.comm->recv(*r.stream, two, 1, "stream");  // segments arrive at 1 ms and 2 ms
      EXPECT_TRUE(r.device->synchronize(*r.stream));
      middle_done = job.sched->now();
    }
  }),
            RunEnd::kCompleted);
  EXPECT_NEAR(middle_done, 2'000'000, kTurnsSlackNs);
}

TEST(LinkTimes, FreeThreadsReallyWait) {
  Job job(Sched::free_threads(), 2, CommOptions{8, {.latency_us = 20'000, .gbytes_per_s = 1}});
  int64_t took = 0;
  EXPECT_EQ(job.run([&](HostRank& r) {
    Tensor t = r.filled(10, [](int64_t i) { return double(i); });
    const int64_t begin = job.sched->now();
    r.comm->all_reduce(*r.stream, t, t, RedOp::kSum, "sum");  // two phases
    EXPECT_EQ(r.values(t)[9], 18);
    if (r.rank == 0) took = job.sched->now() - begin;
  }),
            RunEnd::kCompleted);
  EXPECT_GE(took, 40'000'000);
}

}  // namespace
}  // namespace ringscope
