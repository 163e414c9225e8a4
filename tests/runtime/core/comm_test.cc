// What collectives and transfers compute, at every size and number of slots.
#include <cmath>

#include "job.h"
#include "runtime/comm/fifo.h"

namespace ringscope {
namespace {

using testing::HostRank;
using testing::Job;
using testing::under_all_runners;

constexpr int64_t kSlotFloats = kSlotBytes / 4;

// Different for every rank and element, with rounding in every sum.
double value_of(int rank, int64_t i) { return std::sin(double(i % 1009) + 0.1) * std::pow(10.0, rank - 1) + 0.3; }

template <class T>
double plain_sum(int64_t i, int world) {  // ascending rank, in the type of the data
  T sum = T(value_of(0, i));
  for (int r = 1; r < world; ++r) sum += T(value_of(r, i));
  return double(sum);
}

void under_all_slots(const std::vector<int64_t>& counts,
                     const std::function<void(std::function<std::unique_ptr<Job>()>, int64_t, int)>& check) {
  for (int world : {1, 2, 3})
    for (int slots : {0, 1, 8})
      for (int64_t count : counts)
        under_all_runners([&](auto make) {
          SCOPED_TRACE("world " + std::to_string(world) + ", slots " + std::to_string(slots) + ", count " +
                       std::to_string(count));
          check([&] { return std::make_unique<Job>(make(), world, CommOptions{slots, {}}); }, count, world);
        });
}

const std::vector<int64_t> kSmall = {0, 1, 7, 1000};

TEST(Comm, AllReduceAddsInAscendingRank) {
  under_all_slots(kSmall, [](auto make, int64_t count, int world) {
    auto job = make();
    EXPECT_EQ(job->run([&](HostRank& r) {
      for (DType dtype : {DType::kF32, DType::kF64})
        for (bool in_place : {false, true}) {
          Tensor in = r.filled(
              count, [&](int64_t i) { return value_of(r.rank, i); }, dtype);
          Tensor out = in_place ? in : r.make(count, dtype);
          r.comm->all_reduce(*r.stream, in, out, RedOp::kSum, "sum");
          const auto got = r.values(out);
          ASSERT_EQ(int64_t(got.size()), count);
          for (int64_t i = 0; i < count; ++i)
            ASSERT_EQ(got[i], dtype == DType::kF32 ? plain_sum<float>(i, world) : plain_sum<double>(i, world)) << i;
        }
      // Both phases move (P - 1) chunks: all chunks but the own one out, the own one to all others.
      const int64_t chunk = (count + world - 1) / world;
      const auto length = [&](int p) { return std::clamp<int64_t>(count - p * chunk, 0, chunk); };
      const int64_t elements = count - length(r.rank) + (world - 1) * length(r.rank);
      EXPECT_EQ(r.comm->traffic().bytes_sent, uint64_t(2 * elements * (4 + 8)));
      EXPECT_EQ(r.comm->traffic().operations, 4u);
      // Only an operation in place needs room of its own, for one chunk, and gives it back.
      EXPECT_EQ(r.device->memory(MemCategory::kCommBuffer).live, 0);
      EXPECT_EQ(r.device->memory(MemCategory::kCommBuffer).peak, world == 1 ? 0 : chunk * 8);
    }),
              RunEnd::kCompleted);
  });
}

TEST(Comm, MaxMinAvg) {
  under_all_slots({5}, [](auto make, int64_t count, int world) {
    auto job = make();
    EXPECT_EQ(job->run([&](HostRank& r) {
      for (RedOp op : {RedOp::kMax, RedOp::kMin, RedOp::kAvg}) {
        const auto of = [](int rank, int64_t i) { return double((rank * 7 + i * 3) % 5); };
        Tensor t = r.filled(
            count, [&](int64_t i) { return of(r.rank, i); }, DType::kF64);
        r.comm->all_reduce(*r.stream, t, t, op, "reduce");
        const auto got = r.values(t);
        for (int64_t i = 0; i < count; ++i) {
          double want = of(0, i);
          for (int p = 1; p < world; ++p)
            want = op == RedOp::kMax   ? std::max(want, of(p, i))
                   : op == RedOp::kMin ? std::min(want, of(p, i))
                                       : want + of(p, i);
          ASSERT_EQ(got[i], op == RedOp::kAvg ? want / world : want);
        }
      }
    }),
              RunEnd::kCompleted);
  });
}

// As NCCL: of NaN and numbers MAX and MIN take the numbers, whatever the rank that has the NaN; SUM takes the NaN.
TEST(Comm, NaNLosesAMaximumAndKeepsASum) {
  under_all_slots({5}, [](auto make, int64_t count, int world) {
    auto job = make();
    EXPECT_EQ(job->run([&](HostRank& r) {
      for (RedOp op : {RedOp::kMax, RedOp::kMin, RedOp::kSum})
        for (int poisoned = 0; poisoned < world; ++poisoned) {
          Tensor t = r.filled(
              count, [&](int64_t) { return r.rank == poisoned ? NAN : 1.0 + r.rank; }, DType::kF64);
          r.comm->all_reduce(*r.stream, t, t, op, "reduce");
          const double got = r.values(t)[0];
          if (op == RedOp::kSum || world == 1) ASSERT_TRUE(std::isnan(got));
          else if (op == RedOp::kMax) ASSERT_EQ(got, poisoned == world - 1 ? world - 1 : world);
          else ASSERT_EQ(got, poisoned == 0 ? 2 : 1);
        }
    }),
              RunEnd::kCompleted);
  });
}

TEST(Comm, ReduceScatterAndAllGather) {
  under_all_slots(kSmall, [](auto make, int64_t count, int world) {
    auto job = make();
    EXPECT_EQ(job->run([&](HostRank& r) {
      Tensor in = r.filled(count * world, [&](int64_t i) { return value_of(r.rank, i); });
      Tensor part = r.make(count), whole = r.make(count * world);
      r.comm->reduce_scatter(*r.stream, in, part, RedOp::kSum, "rs");
      r.comm->all_gather(*r.stream, part, whole, "ag");
      const auto got = r.values(whole);
      for (int64_t i = 0; i < count * world; ++i) ASSERT_EQ(got[i], plain_sum<float>(i, world)) << i;
      EXPECT_EQ(r.comm->traffic().bytes_sent, uint64_t(2 * (world - 1) * count * 4));
      // In place, as NCCL allows it: the part lies at its place in the whole.
      Tensor again = r.filled(count * world, [&](int64_t i) { return value_of(r.rank, i); });
      Tensor own = again.rows(r.rank * count, (r.rank + 1) * count);
      r.comm->reduce_scatter(*r.stream, again, own, RedOp::kSum, "rs");
      r.comm->all_gather(*r.stream, own, again, "ag");
      EXPECT_EQ(r.values(again), got);
    }),
              RunEnd::kCompleted);
  });
}

TEST(Comm, BroadcastAndAllToAll) {
  under_all_slots(kSmall, [](auto make, int64_t count, int world) {
    auto job = make();
    EXPECT_EQ(job->run([&](HostRank& r) {
      const int root = world - 1;
      Tensor b = r.filled(count, [&](int64_t i) { return double(r.rank * 10000 + i); });
      r.comm->broadcast(*r.stream, b, root, "b");
      const auto got = r.values(b);
      for (int64_t i = 0; i < count; ++i) ASSERT_EQ(got[i], root * 10000 + i);
      for (bool in_place : {false, true}) {
        Tensor in = r.filled(count * world, [&](int64_t i) { return double(r.rank * 10000 + i); });
        Tensor out = in_place ? in : r.make(count * world);
        r.comm->all_to_all(*r.stream, in, out, "a2a");
        const auto parts = r.values(out);
        for (int p = 0; p < world; ++p)
          for (int64_t i = 0; i < count; ++i) ASSERT_EQ(parts[p * count + i], p * 10000 + r.rank * count + i);
      }
    }),
              RunEnd::kCompleted);
  });
}

// More bytes than all slots hold, and not a multiple of a slot.
TEST(Comm, LargeMessagesStreamThroughTheSlots) {
  const int64_t count = 9 * kSlotFloats + 13;
  for (int slots : {0, 1, 8})
    for (bool turns : {false, true}) {
      SCOPED_TRACE("slots " + std::to_string(slots) + (turns ? ", turns" : ", free"));
      Job job(turns ? Sched::turns(5) : Sched::free_threads(), 2, CommOptions{slots, {}});
      EXPECT_EQ(job.run([&](HostRank& r) {
        Tensor t = r.filled(count, [&](int64_t i) { return double((i * 31 + r.rank) % 4096); });
        Tensor got = r.make(count);
        {
          CommGroup group(*r.comm);
          r.comm->send(*r.stream, t, 1 - r.rank, "send");
          r.comm->recv(*r.stream, got, 1 - r.rank, "recv");
        }
        r.comm->all_reduce(*r.stream, t, t, RedOp::kSum, "sum");
        const auto peer = r.values(got), sum = r.values(t);
        for (int64_t i = 0; i < count; ++i) {
          const double own = double((i * 31 + r.rank) % 4096), other = double((i * 31 + 1 - r.rank) % 4096);
          ASSERT_EQ(peer[i], other);
          ASSERT_EQ(sum[i], own + other);
        }
        EXPECT_EQ(r.comm->traffic().bytes_sent, uint64_t(count * 4 * 2));
      }),
                RunEnd::kCompleted);
    }
}

TEST(Comm, ARingInGroupsPassesAtEveryNumberOfSlots) {
  for (int world : {2, 4})
    for (int slots : {0, 1, 8})
      under_all_runners([&](auto make) {
        SCOPED_TRACE("world " + std::to_string(world) + ", slots " + std::to_string(slots));
        Job job(make(), world, CommOptions{slots, {}});
        EXPECT_EQ(job.run([&](HostRank& r) {
          Tensor held = r.filled(100, [&](int64_t) { return double(r.rank); });
          for (int hop = 1; hop <= world; ++hop) {
            Tensor next = r.make(100);
            {
              CommGroup group(*r.comm);
              r.comm->send(*r.stream, held, (r.rank + 1) % world, "ring.send");
              r.comm->recv(*r.stream, next, (r.rank + world - 1) % world, "ring.recv");
            }
            held = next;
            EXPECT_EQ(r.values(held)[99], double((r.rank + world - hop) % world));
          }
        }),
                  RunEnd::kCompleted);
      });
}

// Groups that mix collectives with transfers, and ranks that group differently: order counts, grouping does not.
TEST(Comm, GroupsOfCollectivesMatchUngroupedCalls) {
  for (int slots : {0, 8})
    under_all_runners([&](auto make) {
      Job job(make(), 2, CommOptions{slots, {}});
      EXPECT_EQ(job.run([&](HostRank& r) {
        Tensor a = r.filled(5, [&](int64_t i) { return double(r.rank + i); });
        Tensor b = r.filled(6, [&](int64_t i) { return double(10 * r.rank + i); });
        Tensor c = r.make(12), d = r.make(4);
        if (r.rank == 0) r.comm->group_start();
        r.comm->all_reduce(*r.stream, a, a, RedOp::kSum, "a");
        r.comm->all_reduce(*r.stream, b, b, RedOp::kSum, "b");
        r.comm->all_gather(*r.stream, b, c, "c");
        if (r.rank == 0) r.comm->group_end();
        if (r.rank == 0) r.comm->send(*r.stream, a.rows(0, 4), 1, "send");
        else r.comm->recv(*r.stream, d, 0, "recv");
        EXPECT_EQ(r.values(a), (std::vector<double>{1, 3, 5, 7, 9}));
        EXPECT_EQ(r.values(c)[11], 20);
        if (r.rank == 1) {
          EXPECT_EQ(r.values(d), (std::vector<double>{1, 3, 5, 7}));
        }
      }),
                RunEnd::kCompleted);
    });
}

TEST(Comm, NestedGroupsEndWithTheOutermost) {
  Job job(Sched::turns(3), 2, CommOptions{0, {}});
  EXPECT_EQ(job.run([&](HostRank& r) {
    Tensor mine = r.filled(3, [&](int64_t) { return double(r.rank); }), got = r.make(3);
    {
      CommGroup outer(*r.comm);
      {
        CommGroup inner(*r.comm);
        r.comm->send(*r.stream, mine, 1 - r.rank, "send");
      }
      r.comm->recv(*r.stream, got, 1 - r.rank, "recv");
    }
    EXPECT_EQ(r.values(got)[0], 1 - r.rank);
  }),
            RunEnd::kCompleted);
}

TEST(Comm, SplitMakesGroupsByColorInKeyOrder) {
  under_all_runners([](auto make) {
    Job job(make(), 4);
    EXPECT_EQ(job.run([](HostRank& r) {
      auto pair = r.comm->split(r.rank % 2, -r.rank, Axis::kDp, "pair");
      ASSERT_NE(pair, nullptr);
      EXPECT_EQ(pair->ranks(), (std::vector<int>{r.rank % 2 + 2, r.rank % 2}));
      EXPECT_EQ(pair->axis(), Axis::kDp);
      EXPECT_NE(pair->id(), r.comm->id());
      Tensor t = r.filled(3, [&](int64_t) { return double(r.rank); });
      pair->all_reduce(*r.stream, t, t, RedOp::kSum, "sum");
      EXPECT_EQ(r.values(t)[0], r.rank % 2 ? 4 : 2);
      auto none = r.comm->split(r.rank == 0 ? -1 : 5, 0, Axis::kTp, "three");
      EXPECT_EQ(none == nullptr, r.rank == 0);
      if (none) {
        EXPECT_EQ(none->size(), 3);
      }
      r.others.push_back(std::move(pair));
      r.others.push_back(std::move(none));
    }),
              RunEnd::kCompleted);
    EXPECT_EQ(job.ranks[0]->others[0]->id(), job.ranks[2]->others[0]->id());
    EXPECT_NE(job.ranks[0]->others[0]->id(), job.ranks[1]->others[0]->id());
  });
}

// A ring of odd sizes: the results, the traffic and the last logical time must not depend on anything but the seed.
TEST(Comm, TurnsAreReproducible) {
  const auto run = [](uint64_t seed) {
    Job job(Sched::turns(seed), 3, CommOptions{1, {}});
    std::vector<int64_t> times(3);
    EXPECT_EQ(job.run([&](HostRank& r) {
      Tensor t = r.filled(77, [&](int64_t i) { return value_of(r.rank, i); });
      for (int i = 0; i < 5; ++i) r.comm->all_reduce(*r.stream, t, t, RedOp::kAvg, "avg");
      (void)r.values(t);
      times[r.rank] = job.sched->now();
    }),
              RunEnd::kCompleted);
    return times;
  };
  const auto first = run(11);
  EXPECT_EQ(run(11), first);
  EXPECT_EQ(run(11), first);
  EXPECT_NE(run(12), first);
}

}  // namespace
}  // namespace ringscope
