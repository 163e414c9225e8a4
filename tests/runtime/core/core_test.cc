// sched, device and communicator: the semantics that break in real jobs.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <random>

#include "tests/runtime/core/ranks.h"

namespace ringscope {
namespace {

using testing::Rank;
using testing::run_ranks;
using testing::RunOptions;

// ---- sched -----------------------------------------------------------------------------------------------------

std::vector<int> interleaving(uint64_t seed) {
  auto sched = Sched::turns(seed);
  Channel channel;
  std::vector<int> order;
  for (int t = 0; t < 4; ++t)
    sched->spawn("task" + std::to_string(t), [&, t] {
      for (int i = 0; i < 8; ++i) {
        sched->update(channel, [&] { order.push_back(t); });
        sched->yield();
      }
    });
  EXPECT_EQ(sched->run(), RunEnd::kCompleted);
  return order;
}

TEST(Sched, TurnsRepeatForASeedAndDifferForAnother) {
  EXPECT_EQ(interleaving(5), interleaving(5));
  EXPECT_NE(interleaving(5), interleaving(6));
}

TEST(Sched, LogicalClockJumpsToTheEarliestSleeper) {
  auto sched = Sched::turns(1);
  std::vector<int64_t> woke;
  Channel channel;
  for (int64_t ns : std::vector<int64_t>{5'000'000'000, 2'000'000'000, 9'000'000'000})
    sched->spawn("sleeper", [&, ns] {
      EXPECT_TRUE(sched->sleep_until(ns));
      sched->update(channel, [&] { woke.push_back(sched.get() ? ns : 0); });
    });
  const auto started = std::chrono::steady_clock::now();
  EXPECT_EQ(sched->run(), RunEnd::kCompleted);
  EXPECT_LT(std::chrono::steady_clock::now() - started, std::chrono::seconds(2));
  EXPECT_EQ(woke, (std::vector<int64_t>{2'000'000'000, 5'000'000'000, 9'000'000'000}));
}

void expect_proved_stall(std::unique_ptr<Sched> sched) {
  Channel channel;
  StallSnapshot seen;
  sched->on_stall = [&](const StallSnapshot& s) { seen = s; };
  sched->spawn(
      "worker",
      [&] {
        (void)sched->block_until(channel, [] { return false; }, {"work", true});
      },
      true);
  sched->spawn("rank0", [&] { EXPECT_FALSE(sched->block_until(channel, [] { return false; }, {"a peer"})); });
  const auto started = std::chrono::steady_clock::now();
  EXPECT_EQ(sched->run(), RunEnd::kStalled);
  EXPECT_LT(std::chrono::steady_clock::now() - started, std::chrono::seconds(2));  // the timeout is 10 s
  EXPECT_FALSE(seen.by_time);
  ASSERT_EQ(seen.blocked.size(), 2u);
  EXPECT_EQ(seen.blocked[1].role, "rank0");
  EXPECT_EQ(seen.blocked[1].what, "a peer");
  EXPECT_TRUE(seen.blocked[0].idle);
}
TEST(Sched, StallIsProvedAtOnce) {
  expect_proved_stall(Sched::free_threads());
  expect_proved_stall(Sched::turns(3));
}

TEST(Sched, StallIsSeenByTimeWhenATaskOnlySleeps) {
  auto sched = Sched::free_threads();
  sched->stall_timeout_ns = 100'000'000;
  StallSnapshot seen;
  sched->on_stall = [&](const StallSnapshot& s) { seen = s; };
  sched->spawn("sleeper", [&] { (void)sched->sleep_until(sched->now() + 60'000'000'000); });
  EXPECT_EQ(sched->run(), RunEnd::kStalled);
  EXPECT_TRUE(seen.by_time);
}

TEST(Sched, IdleWorkersAloneAreNoStall) {
  auto sched = Sched::free_threads();
  Channel channel;
  sched->spawn(
      "worker",
      [&] {
        (void)sched->block_until(channel, [] { return false; }, {"work", true});
      },
      true);
  sched->spawn("rank0", [] {});
  EXPECT_EQ(sched->run(), RunEnd::kCompleted);
}

TEST(Sched, InterruptionStopsBlockedTasks) {
  auto sched = Sched::free_threads();
  std::atomic<bool> now{false};
  sched->interrupted = [&] { return now.load(); };
  sched->spawn("rank0", [&] {
    now = true;
    EXPECT_FALSE(sched->sleep_until(sched->now() + 60'000'000'000));
  });
  EXPECT_EQ(sched->run(), RunEnd::kStopped);
}

// ---- device ----------------------------------------------------------------------------------------------------

TEST(Device, EventsBindTheLastRecordBeforeTheWait) {
  for (bool turns : {false, true}) {
    RunOptions options{.ranks = 1, .turns = turns};
    EXPECT_EQ(run_ranks(options,
                        [](Rank& rank) {
                          Device& device = rank.device;
                          Stream& other = device.create_stream("other");
                          Event never = device.create_event("never"), event = device.create_event("event");
                          device.wait(rank.stream, never);  // a no-op, or this would hang
                          Tensor t = rank.values({1});
                          kernels::scale(device, rank.stream, "x10", t, 10);
                          device.record(event, rank.stream);
                          device.wait(other, event);
                          kernels::scale(device, other, "x3", t, 3);
                          // Recorded again after the wait: the wait above keeps its own snapshot.
                          Event done = device.create_event("done");
                          device.record(done, other);
                          device.wait(rank.stream, done);
                          device.record(event, rank.stream);
                          EXPECT_EQ(rank.read(t), std::vector<double>{30});
                        }),
              RunEnd::kCompleted);
  }
}

TEST(Device, MemoryIsCountedInHostOrder) {
  for (int repeat = 0; repeat < 5; ++repeat) {
    run_ranks({.ranks = 1}, [](Rank& rank) {
      Device& device = rank.device;
      const int64_t before = device.memory_total().live;
      device.reset_peak();
      for (int i = 0; i < 10; ++i) {  // one at a time for the host, however many are in flight
        Tensor t = device.allocate(DType::kF32, {1000}, MemCategory::kKvRing, "temporary");
        kernels::fill(device, rank.stream, "fill", t, 1);
      }
      EXPECT_EQ(device.memory(MemCategory::kKvRing).peak, 4000);
      EXPECT_EQ(device.memory(MemCategory::kKvRing).live, 0);
      EXPECT_EQ(device.memory_total().live, before);
    });
  }
}

TEST(DeviceDeathTest, HostCodeMayNotLookAtValues) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(run_ranks({.ranks = 1}, [](Rank& rank) { (void)rank.values({1}).data<double>()[0]; }),
               "outside a launch");
}

TEST(Device, KilledWorkersStopBeforeTheirNextOperation) {
  StallSnapshot snapshot;
  EXPECT_EQ(run_ranks(
                {.ranks = 2},
                [](Rank& rank) {
                  Tensor t = rank.values({1});
                  if (rank.comm.rank() == 1) {
                    rank.device.kill_workers();
                    return;
                  }
                  rank.comm.all_reduce(rank.stream, t, t, RedOp::kSum, "sum");
                  EXPECT_TRUE(rank.read(t).empty());
                },
                &snapshot),
            RunEnd::kStalled);
}

// ---- communicator ----------------------------------------------------------------------------------------------

std::vector<double> numbers(int rank, int64_t n) {
  std::mt19937_64 random(uint64_t(rank) * 77 + 1);
  std::vector<double> v;
  for (int64_t i = 0; i < n; ++i) v.push_back(double(random() % 1000) / 7 - 60);
  return v;
}

class Collectives : public ::testing::TestWithParam<std::tuple<int, int, bool>> {
 protected:
  RunOptions options() const {
    RunOptions o;
    o.ranks = std::get<0>(GetParam());
    o.comm.p2p_slots = std::get<1>(GetParam());
    o.turns = std::get<2>(GetParam());
    o.seed = 11;
    return o;
  }
};

TEST_P(Collectives, AreExactAndSendWhatTheFormulaSays) {
  const int p = options().ranks;
  // The last size needs more slots than there are.
  for (int64_t n : {int64_t(1), int64_t(37), int64_t(p) * 5, int64_t(1 << 20)}) {
    if (n > 1000 && (p != 2 || std::get<1>(GetParam()) == 1 || std::get<2>(GetParam()))) continue;
    EXPECT_EQ(run_ranks(options(),
                        [&](Rank& rank) {
                          Tensor in = rank.values(numbers(rank.comm.rank(), n));
                          Tensor out = rank.device.allocate(DType::kF64, {n}, MemCategory::kActivation, "out");
                          const uint64_t before = rank.comm.traffic().bytes_sent;
                          rank.comm.all_reduce(rank.stream, in, out, RedOp::kSum, "sum");
                          std::vector<double> sum = numbers(0, n), top = numbers(0, n);
                          for (int r = 1; r < p; ++r) {
                            const std::vector<double> other = numbers(r, n);
                            for (int64_t i = 0; i < n; ++i) sum[i] += other[i], top[i] = std::max(top[i], other[i]);
                          }
                          EXPECT_EQ(rank.read(out), sum);  // bit for bit: added in ascending rank
                          if (n % p == 0) {
                            EXPECT_EQ(rank.comm.traffic().bytes_sent - before, uint64_t(2 * (p - 1) * (n / p) * 8));
                          }
                          rank.comm.all_reduce(rank.stream, in, in, RedOp::kMax, "max");  // in place
                          EXPECT_EQ(rank.read(in), top);

                          Tensor all = rank.device.allocate(DType::kF64, {n * p}, MemCategory::kActivation, "all");
                          Tensor own = rank.values(numbers(rank.comm.rank(), n));
                          rank.comm.all_gather(rank.stream, own, all, "gather");
                          std::vector<double> gathered;
                          for (int r = 0; r < p; ++r)
                            for (double v : numbers(r, n)) gathered.push_back(v);
                          EXPECT_EQ(rank.read(all), gathered);

                          Tensor part = rank.device.allocate(DType::kF64, {n}, MemCategory::kActivation, "part");
                          rank.comm.reduce_scatter(rank.stream, all, part, RedOp::kAvg, "avg");
                          std::vector<double> average;
                          for (int64_t i = 0; i < n; ++i) {
                            double total = gathered[rank.comm.rank() * n + i];
                            for (int r = 1; r < p; ++r) total += gathered[rank.comm.rank() * n + i];
                            average.push_back(total / p);
                          }
                          EXPECT_EQ(rank.read(part), average);

                          rank.comm.broadcast(rank.stream, part, p - 1, "broadcast");
                          const std::vector<double> from_last = rank.read(part);
                          EXPECT_EQ(from_last.size(), size_t(n));

                          Tensor shuffled =
                              rank.device.allocate(DType::kF64, {n * p}, MemCategory::kActivation, "shuffled");
                          rank.comm.all_to_all(rank.stream, all, shuffled, "all_to_all");
                          std::vector<double> expected;
                          for (int r = 0; r < p; ++r)
                            for (int64_t i = 0; i < n; ++i) expected.push_back(gathered[rank.comm.rank() * n + i]);
                          EXPECT_EQ(rank.read(shuffled), expected);
                        }),
              RunEnd::kCompleted);
  }
}
INSTANTIATE_TEST_SUITE_P(Sizes, Collectives,
                         ::testing::Combine(::testing::Values(2, 3, 5), ::testing::Values(0, 1, 8), ::testing::Bool()));

TEST(P2p, GroupedRingPassesAtRendezvousAlsoWithTwoRanks) {
  for (int p : {2, 4}) {
    RunOptions options{.ranks = p};
    options.comm.p2p_slots = 0;
    EXPECT_EQ(run_ranks(options,
                        [p](Rank& rank) {
                          const int me = rank.comm.rank();
                          Tensor mine = rank.values({double(me)}), theirs = rank.values({-1});
                          {
                            CommGroup group(rank.comm);
                            rank.comm.recv(rank.stream, theirs, (me + p - 1) % p, "recv");
                            rank.comm.send(rank.stream, mine, (me + 1) % p, "send");
                          }
                          EXPECT_EQ(rank.read(theirs), std::vector<double>{double((me + p - 1) % p)});
                        }),
              RunEnd::kCompleted);
  }
}

RunEnd ungrouped_circle(int slots, int64_t count) {
  RunOptions options{.ranks = 3};
  options.comm.p2p_slots = slots;
  return run_ranks(options, [count](Rank& rank) {
    const int me = rank.comm.rank();
    Tensor mine = rank.values(std::vector<double>(count, me)), theirs = rank.values(std::vector<double>(count, -1));
    rank.comm.send(rank.stream, mine, (me + 1) % 3, "send");
    rank.comm.recv(rank.stream, theirs, (me + 2) % 3, "recv");
    (void)rank.read(theirs);
  });
}
TEST(P2p, UngroupedSendsInACircleHangAboveTheSlots) {
  EXPECT_EQ(ungrouped_circle(8, 10), RunEnd::kCompleted);
  EXPECT_EQ(ungrouped_circle(0, 10), RunEnd::kStalled);
  EXPECT_EQ(ungrouped_circle(1, 65536 + 1), RunEnd::kStalled);  // two segments, one slot
}

TEST(P2p, IsAByteStreamWithoutTags) {
  EXPECT_EQ(run_ranks({.ranks = 2},
                      [](Rank& rank) {
                        if (rank.comm.rank() == 0) {
                          rank.comm.send(rank.stream, rank.values({1, 2, 3}), 1, "three");
                          rank.comm.send(rank.stream, rank.values({4}), 1, "one");
                          EXPECT_TRUE(rank.device.synchronize(rank.stream));
                          return;
                        }
                        Tensor two = rank.values({0, 0}), other = rank.values({0, 0});
                        rank.comm.recv(rank.stream, two, 0, "two");  // the surplus stays for the successor
                        rank.comm.recv(rank.stream, other, 0, "two");
                        EXPECT_EQ(rank.read(two), (std::vector<double>{1, 2}));
                        EXPECT_EQ(rank.read(other), (std::vector<double>{3, 4}));
                      }),
            RunEnd::kCompleted);
  EXPECT_EQ(
      run_ranks({.ranks = 2},
                [](Rank& rank) {
                  if (rank.comm.rank() == 0) rank.comm.send(rank.stream, rank.values({1}), 1, "one");
                  else rank.comm.recv(rank.stream, rank.values({0, 0}), 0, "two");  // waits for bytes that never come
                  (void)rank.device.synchronize(rank.stream);
                }),
      RunEnd::kStalled);
}

TEST(P2p, SeveralMessagesToOnePeerGoInCallOrder) {
  for (int slots : {0, 8}) {
    RunOptions options{.ranks = 2};
    options.comm.p2p_slots = slots;
    EXPECT_EQ(run_ranks(options,
                        [](Rank& rank) {
                          Tensor a = rank.values({1, 1}), b = rank.values({2});
                          if (rank.comm.rank() == 1) a = rank.values({0, 0}), b = rank.values({0});
                          {
                            CommGroup group(rank.comm);
                            for (const Tensor& t : {a, b})
                              rank.comm.rank() == 0 ? rank.comm.send(rank.stream, t, 1, "send")
                                                    : rank.comm.recv(rank.stream, t, 0, "recv");
                          }
                          EXPECT_EQ(rank.read(a), (std::vector<double>{1, 1}));
                          EXPECT_EQ(rank.read(b), std::vector<double>{2});
                        }),
              RunEnd::kCompleted);
  }
}

TEST(Mismatch, HangsInsteadOfComplaining) {
  StallSnapshot snapshot;
  EXPECT_EQ(run_ranks(
                {.ranks = 3},
                [](Rank& rank) {
                  Tensor t = rank.values({1, 2, 3, 4, 5, 6});
                  if (rank.comm.rank() == 1) rank.comm.broadcast(rank.stream, t, 0, "broadcast");
                  else rank.comm.all_reduce(rank.stream, t, t, RedOp::kSum, "sum");
                  (void)rank.read(t);
                },
                &snapshot),
            RunEnd::kStalled);
  EXPECT_FALSE(snapshot.by_time);
  bool named = false;
  for (const BlockedTask& task : snapshot.blocked) named |= task.what == "all_reduce";
  EXPECT_TRUE(named);
}

TEST(Split, GroupsByColorInKeyOrder) {
  EXPECT_EQ(run_ranks({.ranks = 4},
                      [](Rank& rank) {
                        const int me = rank.comm.rank();
                        auto half = rank.comm.split(me % 2, -me, Axis::kTp, "half");
                        ASSERT_NE(half, nullptr);
                        EXPECT_EQ(half->ranks(), (me % 2 ? std::vector<int>{3, 1} : std::vector<int>{2, 0}));
                        Tensor t = rank.values({double(me)});
                        half->all_reduce(rank.stream, t, t, RedOp::kSum, "sum");
                        EXPECT_EQ(rank.read(t), std::vector<double>{me % 2 ? 4.0 : 2.0});
                      }),
            RunEnd::kCompleted);
}

TEST(Abort, WakesEverybodyAndIsAnAsyncError) {
  StallSnapshot snapshot;
  run_ranks(
      {.ranks = 2},
      [](Rank& rank) {
        Tensor t = rank.values({1});
        if (rank.comm.rank() == 0) {
          rank.comm.all_reduce(rank.stream, t, t, RedOp::kSum, "sum");
          return;
        }
        EXPECT_FALSE(rank.comm.async_error());
        rank.comm.abort();
        EXPECT_TRUE(rank.comm.async_error());
      },
      &snapshot);
  EXPECT_TRUE(snapshot.blocked.empty());  // no stall: the waiting operation was woken
}

TEST(Link, TakesLatencyAndBandwidthInLogicalTime) {
  RunOptions options{.ranks = 2, .turns = true};
  options.comm.link = {100, 1.0, 0, 0};  // 100 us, 1 GB/s
  int64_t end = 0;
  EXPECT_EQ(run_ranks(
                options,
                [](Rank& rank) {
                  Tensor t = rank.values(std::vector<double>(50000, 1));  // 400 kB: 400 us
                  if (rank.comm.rank() == 1) rank.comm.send(rank.stream, t, 0, "send");
                  else rank.comm.recv(rank.stream, t, 1, "recv");
                  (void)rank.device.synchronize(rank.stream);
                },
                nullptr, &end),
            RunEnd::kCompleted);
  EXPECT_GE(end, 500'000);
  EXPECT_LT(end, 501'000);
}

}  // namespace
}  // namespace ringscope
