// sched: the only place of the runtime that knows threads, waiting and clocks. Ranks' host programs and stream
// workers are its tasks.
//
// Two runners behind one interface:
//   free_threads()  every task is a thread and runs whenever it can; now() is the monotonic clock.
//   turns(seed)     one task runs at a time; at every call below the turn may pass to another runnable task,
//                   chosen by a generator seeded with `seed`: same seed, same interleaving. now() is logical ns
//                   and jumps to the earliest sleeper when nothing is runnable.
//
// Waiting: a task waits for a condition over state that is changed only inside update(). update holds sched's
// lock, re-evaluates the conditions that wait on the channel named, and wakes exactly those that came true.
//
// Stall: nothing is runnable or sleeping, and some wait is not idle (an idle wait is a worker without work).
// It is known at once, in both runners. Stall by time: no beat() for `timeout_ns` and no kernel running
// (running counts are kept by Busy below).
//
// stop(): every blocked and every later blocking call returns false; tasks unwind by returning.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace ringscope {

// State that conditions read is grouped by channel: an object embeds one and names it in update/block_until.
class Channel {
 public:
  Channel();
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

 private:
  friend class SchedImpl;
  std::vector<void*> waiters_;  // guarded by sched's lock
};

struct WaitWhy {
  const char* what = "";  // static text: "comm.recv", "event", "queue"
  bool idle = false;      // a worker without work: never counts as stuck
};

// How run() ended.
enum class RunEnd { kCompleted, kStalled, kStopped };

struct BlockedTask {  // one line of a stall's snapshot
  std::string role;   // "rank3.host", "rank3.compute"
  std::string what;
  bool idle = false;
};
struct StallSnapshot {
  bool by_time = false;  // otherwise proved: no task can run
  int64_t at_ns = 0;     // wall clock of the trace (CLOCK_REALTIME)
  std::vector<BlockedTask> blocked;
};

class Sched {
 public:
  static std::unique_ptr<Sched> free_threads();
  static std::unique_ptr<Sched> turns(uint64_t seed);
  virtual ~Sched() = default;

  // Starts a task. daemon: run() does not wait for it (stream workers). Callable before run() and from tasks.
  virtual void spawn(std::string role, std::function<void()> body, bool daemon = false) = 0;

  // From a task. True when the condition held (under the lock); false when stopped. The condition must be
  // cheap, must not call sched, and may change the state of its channel when it returns true (take an item).
  [[nodiscard]] virtual bool block_until(Channel&, const std::function<bool()>& condition, WaitWhy why) = 0;

  // The same, or until now() reaches `wake_ns`, which the condition may set (0 = no such time): it is read whenever
  // the condition was false. A task that waits for a time counts as sleeping.
  enum class WaitEnd { kHeld, kTime, kStopped };
  [[nodiscard]] virtual WaitEnd block_until_or_time(Channel&, const std::function<bool()>& condition, WaitWhy why,
                                                    const int64_t& wake_ns) = 0;

  // Changes shared state under sched's lock; callable from tasks and from outside.
  virtual void update(Channel&, const std::function<void()>& change) = 0;

  // From a task: a point where the turn may pass. No-op for free threads.
  virtual void yield() = 0;
  // From a task: false when stopped. A sleeper counts as progressing: no stall is proved; the stall by time
  // comes all the same, in real time.
  [[nodiscard]] virtual bool sleep_until(int64_t ns) = 0;
  virtual int64_t now() const = 0;

  virtual void stop() = 0;
  virtual bool stopped() const = 0;

  // Progress marks for the stall by time: an operation started or ended; a kernel is running.
  virtual void beat() = 0;
  virtual void kernel_begin() = 0;
  virtual void kernel_end() = 0;

  // Called on the thread of run(), before stop(), with every task still blocked. Set before run().
  std::function<void(const StallSnapshot&)> on_stall;
  // Polled about every 50 ms on the thread of run(); true = stop the run (Ctrl-C). Set before run().
  std::function<bool()> interrupted;
  int64_t stall_timeout_ns = 10'000'000'000;

  // Runs until every non-daemon task returned, a stall was seen (on_stall is called, then stop()), or stop()
  // was called or interrupted() said so. Joins every thread before it returns.
  virtual RunEnd run() = 0;
};

}  // namespace ringscope
