#include "runtime/sched/sched.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

#include "job.h"

namespace ringscope {
namespace {

using testing::under_all_runners;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

TEST(SchedRunners, RunsEveryTaskAndThoseTheySpawn) {
  under_all_runners([](auto make) {
    auto sched = make();
    std::atomic<int> ran{0};
    for (int i = 0; i < 4; ++i)
      sched->spawn("t", [&] {
        sched->spawn("child", [&] { ++ran; });
        ++ran;
      });
    EXPECT_EQ(sched->run(), RunEnd::kCompleted);
    EXPECT_EQ(ran, 8);
  });
}

TEST(SchedRunners, AQueueDeliversEveryItemInOrder) {
  under_all_runners([](auto make) {
    auto sched = make();
    Channel channel;
    std::vector<int> queue, got;
    for (int p = 0; p < 2; ++p)
      sched->spawn("producer", [&, p] {
        for (int i = 0; i < 100; ++i) {  // at most one item at a time: the consumer's take must wake the producers
          int item = p * 1000 + i;
          ASSERT_TRUE(sched->block_until(channel,
                                         [&] {
                                           if (!queue.empty()) return false;
                                           queue.push_back(item);
                                           return true;
                                         },
                                         {"room"}));
        }
      });
    sched->spawn("consumer", [&] {
      for (int i = 0; i < 200; ++i)
        ASSERT_TRUE(sched->block_until(channel,
                                       [&] {
                                         if (queue.empty()) return false;
                                         got.push_back(queue.front());
                                         queue.clear();
                                         return true;
                                       },
                                       {"an item"}));
    });
    ASSERT_EQ(sched->run(), RunEnd::kCompleted);
    for (int p = 0; p < 2; ++p) {
      std::vector<int> own;
      for (int item : got)
        if (item / 1000 == p) own.push_back(item % 1000);
      ASSERT_EQ(own.size(), 100u);
      EXPECT_TRUE(std::is_sorted(own.begin(), own.end()));
    }
  });
}

std::vector<int> interleaving(uint64_t seed) {
  auto sched = Sched::turns(seed);
  std::vector<int> order;  // turns: one task at a time
  for (int t = 0; t < 5; ++t)
    sched->spawn("t", [&, t] {
      if (t == 2)
        sched->spawn("child", [&] {
          for (int i = 0; i < 10; ++i) order.push_back(99), sched->yield();
        });
      for (int i = 0; i < 20; ++i) {
        order.push_back(t);
        if (i % 7 == 3) EXPECT_TRUE(sched->sleep_until(sched->now() + 5));
        else sched->yield();
      }
    });
  EXPECT_EQ(sched->run(), RunEnd::kCompleted);
  return order;
}

TEST(Turns, SameSeedSameInterleavingOtherSeedAnother) {
  const auto first = interleaving(3);
  EXPECT_EQ(first.size(), 110u);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(interleaving(3), first);
  EXPECT_NE(interleaving(4), first);
  EXPECT_FALSE(std::is_sorted(first.begin(), first.end()));
}

TEST(Turns, OneTaskRunsAtATime) {
  auto sched = Sched::turns(9);
  int inside = 0, most = 0;  // plain on purpose: ThreadSanitizer checks the hand-over
  for (int t = 0; t < 6; ++t)
    sched->spawn("t", [&] {
      for (int i = 0; i < 50; ++i) {
        most = std::max(most, ++inside);
        --inside;
        sched->yield();
      }
    });
  EXPECT_EQ(sched->run(), RunEnd::kCompleted);
  EXPECT_EQ(most, 1);
}

TEST(Turns, TimeIsLogicalAndJumps) {
  const auto start = std::chrono::steady_clock::now();
  auto sched = Sched::turns(1);
  std::vector<int> order;
  int64_t woke = 0;
  sched->spawn("late", [&] {
    EXPECT_TRUE(sched->sleep_until(2'000'000'000'000));
    order.push_back(2);
    woke = sched->now();
  });
  sched->spawn("early", [&] {
    EXPECT_TRUE(sched->sleep_until(1'000'000'000'000));
    order.push_back(1);
  });
  EXPECT_EQ(sched->run(), RunEnd::kCompleted);
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
  EXPECT_EQ(woke, 2'000'000'000'000);
  EXPECT_LT(seconds_since(start), 5);
}

TEST(Turns, ASleeperWakesWhileOthersSpin) {
  auto sched = Sched::turns(1);
  bool woke = false;
  sched->spawn("sleeper", [&] {
    EXPECT_TRUE(sched->sleep_until(100));
    woke = true;
  });
  sched->spawn("spinner", [&] {
    for (int i = 0; i < 1'000'000 && !woke; ++i) sched->yield();
  });
  EXPECT_EQ(sched->run(), RunEnd::kCompleted);
  EXPECT_TRUE(woke);
}

TEST(SchedRunners, BlocksUntilTheConditionOrTheTime) {
  under_all_runners([](auto make) {
    auto sched = make();
    Channel channel;
    bool flag = false;
    int64_t deadline = 0;
    sched->spawn("waiter", [&] {
      deadline = sched->now() + 20'000'000;
      EXPECT_EQ(sched->block_until_or_time(
                    channel, [&] { return flag; }, {"flag"}, deadline),
                Sched::WaitEnd::kTime);
      EXPECT_GE(sched->now(), deadline);
      const int64_t far = sched->now() + 3'600'000'000'000;
      EXPECT_EQ(sched->block_until_or_time(
                    channel, [&] { return flag; }, {"flag"}, far),
                Sched::WaitEnd::kHeld);
    });
    sched->spawn("setter", [&] {
      EXPECT_TRUE(sched->sleep_until(sched->now() + 60'000'000));
      sched->update(channel, [&] { flag = true; });
    });
    EXPECT_EQ(sched->run(), RunEnd::kCompleted);
  });
}

TEST(SchedRunners, ATimeThatTheConditionSetsLaterIsKept) {
  under_all_runners([](auto make) {
    auto sched = make();
    Channel channel;
    int64_t arrival = 0, wake = 0;
    sched->spawn("waiter", [&] {
      EXPECT_EQ(sched->block_until_or_time(
                    channel,
                    [&] {
                      wake = arrival;
                      return false;
                    },
                    {"an arrival"}, wake),
                Sched::WaitEnd::kTime);
    });
    sched->spawn("poster", [&] {
      EXPECT_TRUE(sched->sleep_until(sched->now() + 5'000'000));
      const int64_t at = sched->now() + 5'000'000;
      sched->update(channel, [&] { arrival = at; });
    });
    EXPECT_EQ(sched->run(), RunEnd::kCompleted);
  });
}

TEST(SchedRunners, AStallIsProvedAtOnceAndListsWhoIsBlocked) {
  under_all_runners([](auto make) {
    auto sched = make();
    Channel channel;
    int calls = 0;
    StallSnapshot stall;
    bool stopped_before = false;
    sched->on_stall = [&](const StallSnapshot& seen) {
      ++calls;
      stall = seen;
      stopped_before = sched->stopped();
    };
    std::atomic<int> unwound{0};
    sched->spawn("a", [&] {
      EXPECT_FALSE(sched->block_until(channel, [] { return false; }, {"never"}));
      EXPECT_FALSE(sched->block_until(channel, [] { return true; }, {"after stop"}));
      ++unwound;
    });
    sched->spawn("b", [&] {
      EXPECT_FALSE(sched->block_until(channel, [] { return false; }, {"never either"}));
      ++unwound;
    });
    sched->spawn(
        "worker",
        [&] {
          EXPECT_FALSE(sched->block_until(channel, [] { return false; }, {"queue", true}));
          ++unwound;
        },
        true);
    sched->spawn("ends", [&] { sched->yield(); });
    const auto start = std::chrono::steady_clock::now();
    EXPECT_EQ(sched->run(), RunEnd::kStalled);
    EXPECT_LT(seconds_since(start), 5);  // the timeout is 10 s
    EXPECT_EQ(calls, 1);
    EXPECT_FALSE(stopped_before);
    EXPECT_FALSE(stall.by_time);
    EXPECT_GT(stall.at_ns, 1'500'000'000'000'000'000);
    ASSERT_EQ(stall.blocked.size(), 3u);
    EXPECT_EQ(stall.blocked[0].role, "a");
    EXPECT_EQ(stall.blocked[0].what, "never");
    EXPECT_EQ(stall.blocked[1].role, "b");
    EXPECT_TRUE(stall.blocked[2].idle);
    EXPECT_EQ(unwound, 3);
  });
}

TEST(SchedRunners, NoStallIsProvedWhileSomethingSleeps) {
  under_all_runners([](auto make) {
    auto sched = make();
    Channel channel;
    bool flag = false;
    sched->on_stall = [](const StallSnapshot&) { ADD_FAILURE() << "no stall"; };
    sched->spawn("waiter", [&] { EXPECT_TRUE(sched->block_until(channel, [&] { return flag; }, {"flag"})); });
    sched->spawn("sleeper", [&] {
      EXPECT_TRUE(sched->sleep_until(sched->now() + 200'000'000));
      sched->update(channel, [&] { flag = true; });
    });
    sched->spawn(
        "worker",
        [&] {
          EXPECT_FALSE(sched->block_until(channel, [] { return false; }, {"queue", true}));
        },
        true);
    EXPECT_EQ(sched->run(), RunEnd::kCompleted);
  });
}

TEST(SchedRunners, AStallByTimeNeedsQuietAndNoKernel) {
  under_all_runners([](auto make) {
    for (bool kernel : {false, true}) {
      SCOPED_TRACE(kernel ? "with a kernel" : "without");
      auto sched = make();
      sched->stall_timeout_ns = 60'000'000;
      StallSnapshot stall;
      sched->on_stall = [&](const StallSnapshot& seen) { stall = seen; };
      Channel channel;
      bool done = false;
      sched->spawn("waiter", [&] { (void)sched->block_until(channel, [&] { return done; }, {"the busy one"}); });
      sched->spawn("busy", [&] {
        if (kernel) sched->kernel_begin();
        std::this_thread::sleep_for(std::chrono::milliseconds(400));  // a host that computes, unknown to sched
        if (kernel) sched->kernel_end();
        sched->update(channel, [&] { done = true; });
      });
      EXPECT_EQ(sched->run(), kernel ? RunEnd::kCompleted : RunEnd::kStalled);
      EXPECT_EQ(stall.by_time, !kernel);
    }
  });
}

TEST(SchedRunners, InterruptedStopsTheRun) {
  under_all_runners([](auto make) {
    auto sched = make();
    int polls = 0;
    sched->interrupted = [&] { return ++polls > 2; };
    sched->on_stall = [](const StallSnapshot&) { ADD_FAILURE() << "no stall"; };
    sched->spawn("spins", [&] {
      while (!sched->stopped()) sched->yield(), std::this_thread::yield();
    });
    EXPECT_EQ(sched->run(), RunEnd::kStopped);
  });
}

TEST(SchedRunners, StopFromATaskWakesAll) {
  under_all_runners([](auto make) {
    auto sched = make();
    Channel channel;
    sched->spawn("blocked", [&] { EXPECT_FALSE(sched->block_until(channel, [] { return false; }, {"never"})); });
    sched->spawn("sleeps", [&] { EXPECT_FALSE(sched->sleep_until(sched->now() + 3'600'000'000'000)); });
    sched->spawn("stops", [&] {
      sched->yield();
      sched->stop();
      EXPECT_FALSE(sched->sleep_until(sched->now()));
    });
    EXPECT_EQ(sched->run(), RunEnd::kStopped);
  });
}

TEST(SchedRunners, ADaemonIsNotWaitedFor) {
  under_all_runners([](auto make) {
    auto sched = make();
    Channel channel;
    bool unwound = false;
    sched->spawn(
        "daemon",
        [&] {
          EXPECT_FALSE(sched->block_until(channel, [] { return false; }, {"not idle"}));
          unwound = true;
        },
        true);
    sched->spawn("main", [&] { sched->yield(); });
    EXPECT_EQ(sched->run(), RunEnd::kCompleted);
    EXPECT_TRUE(unwound);  // joined
  });
}

}  // namespace
}  // namespace ringscope
