// Both runners. They differ in two places only: what now() is, and whether a runnable task runs at once (free
// threads) or when the turn comes to it (turns).
//
// One lock guards everything here. A task is in one of four states:
//   kRunnable   running, or (turns) waiting for the turn
//   kBlocked    in block_until, condition false (and its time, if it waits for one, not reached)
//   kSleeping   in sleep_until
//   kDone
// `runnable_` counts the first; a stall can only begin when it reaches zero, so that is where it is looked for.
#include "runtime/sched/sched.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "tracedb/base/check.h"

namespace ringscope {

Channel::Channel() = default;
Channel::~Channel() = default;

namespace {

int64_t monotonic_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}
int64_t realtime_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

enum class State { kRunnable, kBlocked, kSleeping, kDone };

struct Task {
  std::string role;
  std::function<void()> body;
  bool daemon = false;
  State state = State::kRunnable;
  const std::function<bool()>* condition = nullptr;  // while blocked
  Channel* channel = nullptr;
  WaitWhy why;
  const int64_t* deadline = nullptr;  // while blocked: wakes at this time too, 0 = never
  int64_t wake_ns = 0;                // while sleeping
  int64_t armed_ns = 0;               // free threads: the time the thread is waiting for
  bool timed_out = false;
  std::condition_variable wake;
  std::thread thread;
};

}  // namespace

class SchedImpl : public Sched {
 public:
  explicit SchedImpl(bool turns, uint64_t seed) : turns_(turns), random_(seed * 0x9E3779B97F4A7C15ull + 1) {}
  ~SchedImpl() override {
    stop();
    join();
  }

  void spawn(std::string role, std::function<void()> body, bool daemon) override {
    std::unique_lock lock(mutex_);
    tasks_.push_back(std::make_unique<Task>());
    Task* task = tasks_.back().get();
    task->role = std::move(role);
    task->body = std::move(body);
    task->daemon = daemon;
    ++runnable_;
    if (!daemon) ++live_;
    if (running_) start(task);
    else waiting_to_start_.push_back(task);
  }

  bool block_until(Channel& channel, const std::function<bool()>& condition, WaitWhy why) override {
    return wait_for(channel, condition, why, nullptr) == WaitEnd::kHeld;
  }

  WaitEnd block_until_or_time(Channel& channel, const std::function<bool()>& condition, WaitWhy why,
                              const int64_t& wake_ns) override {
    return wait_for(channel, condition, why, &wake_ns);
  }

  void update(Channel& channel, const std::function<void()>& change) override {
    std::unique_lock lock(mutex_);
    change();
    if (stopped_) return;  // everybody is awake and leaving
    wake_waiters(channel);
    pass_turn(lock);
  }

  void yield() override {
    if (!turns_) return;
    std::unique_lock lock(mutex_);
    pass_turn(lock);
  }

  bool sleep_until(int64_t ns) override {
    std::unique_lock lock(mutex_);
    if (stopped_) return false;
    Task* task = current_;
    RS_CHECK(task != nullptr, "only a task of this sched may sleep");
    if (turns_ && ns <= logical_now_) {
      pass_turn(lock);
      return !stopped_;
    }
    task->wake_ns = ns;
    leave(task, State::kSleeping);
    wait_until_runnable(lock, task);
    return !stopped_;
  }

  int64_t now() const override {
    if (!turns_) return monotonic_ns();
    std::unique_lock lock(mutex_);
    return logical_now_;
  }

  void stop() override {
    std::unique_lock lock(mutex_);
    stop_locked();
  }
  bool stopped() const override { return stopped_; }

  void beat() override { last_beat_ns_.store(monotonic_ns(), std::memory_order_relaxed); }
  void kernel_begin() override { kernels_.fetch_add(1, std::memory_order_relaxed); }
  void kernel_end() override {
    kernels_.fetch_sub(1, std::memory_order_relaxed);
    beat();
  }

  RunEnd run() override {
    {
      std::unique_lock lock(mutex_);
      RS_CHECK(!running_, "a sched runs once");
      running_ = true;
      beat();
      for (Task* task : waiting_to_start_) start(task);
      waiting_to_start_.clear();
      if (turns_) give_turn();
    }
    const RunEnd end = supervise();
    stop();
    join();
    return end;
  }

 private:
  // The calling thread's task. Thread-local, and one sched at a time per thread.
  static thread_local Task* current_;

  WaitEnd wait_for(Channel& channel, const std::function<bool()>& condition, WaitWhy why, const int64_t* deadline) {
    std::unique_lock lock(mutex_);
    if (stopped_) return WaitEnd::kStopped;
    Task* task = current_;
    RS_CHECK(task != nullptr, "only a task of this sched may block");
    pass_turn(lock);
    if (stopped_) return WaitEnd::kStopped;
    if (condition()) {
      if (!channel.waiters_.empty()) wake_waiters(channel);  // it may have changed what others wait for
      return WaitEnd::kHeld;
    }
    task->condition = &condition;
    task->channel = &channel;
    task->deadline = deadline;
    task->why = why;
    task->timed_out = false;
    channel.waiters_.push_back(task);
    leave(task, State::kBlocked);
    wait_until_runnable(lock, task);
    task->condition = nullptr;
    task->deadline = nullptr;
    if (stopped_) return WaitEnd::kStopped;
    return task->timed_out ? WaitEnd::kTime : WaitEnd::kHeld;
  }

  // Wakes the tasks on the channel whose conditions hold. A condition that holds may change the state (take an
  // item), so the others are asked again until nothing more comes true.
  void wake_waiters(Channel& channel) {
    auto& waiters = channel.waiters_;
    for (bool again = true; again;) {
      again = false;
      for (size_t i = 0; i < waiters.size();) {
        Task* task = static_cast<Task*>(waiters[i]);
        if ((*task->condition)()) {
          waiters.erase(waiters.begin() + i);  // order kept: waking is deterministic
          make_runnable(task);
          again = !waiters.empty();
          continue;
        }
        if (!turns_ && task->deadline && *task->deadline != task->armed_ns) task->wake.notify_one();
        ++i;
      }
    }
  }

  // The time at which a waiting task goes on by itself; 0 = none.
  static int64_t time_of(const Task& task) {
    if (task.state == State::kSleeping) return std::max<int64_t>(task.wake_ns, 1);
    return task.state == State::kBlocked && task.deadline ? *task.deadline : 0;
  }

  // The time of a waiting task has come.
  void wake_by_time(Task* task) {
    if (task->state == State::kBlocked) {
      std::erase(task->channel->waiters_, static_cast<void*>(task));
      task->timed_out = true;
    }
    task->state = State::kRunnable;
    ++runnable_;
  }

  void wait_until_runnable(std::unique_lock<std::mutex>& lock, Task* task) {
    if (turns_) {
      task->wake.wait(lock, [&] { return task->state == State::kRunnable && has_turn(task); });
      return;
    }
    while (task->state != State::kRunnable) {
      task->armed_ns = time_of(*task);
      if (task->armed_ns == 0) {
        task->wake.wait(lock);
        continue;
      }
      task->wake.wait_until(lock, std::chrono::steady_clock::time_point(std::chrono::nanoseconds(task->armed_ns)));
      const int64_t at = time_of(*task);
      if (task->state != State::kRunnable && at > 0 && at <= monotonic_ns()) wake_by_time(task);
    }
  }

  bool has_turn(const Task* task) const { return !turns_ || turn_ == task || stopped_; }

  void start(Task* task) {
    task->thread = std::thread([this, task] {
      current_ = task;
      {
        std::unique_lock lock(mutex_);
        task->wake.wait(lock, [&] { return has_turn(task); });
      }
      task->body();
      std::unique_lock lock(mutex_);
      if (!task->daemon) --live_;
      leave(task, State::kDone);
    });
  }

  // The calling task stops being runnable.
  void leave(Task* task, State state) {
    task->state = state;
    --runnable_;
    if (turns_ && turn_ == task) {
      turn_ = nullptr;
      if (!stopped_) give_turn();
    }
    if (runnable_ == 0 || live_ == 0) supervisor_.notify_all();
  }

  void make_runnable(Task* task) {
    task->state = State::kRunnable;
    ++runnable_;
    if (!turns_) task->wake.notify_one();
    else if (turn_ == nullptr && running_) give_turn();
  }

  // Turns: chooses the next task among the runnable ones, in spawn order, by the seeded generator. With none,
  // logical time jumps to the earliest time that a task waits for.
  void give_turn() {
    if (collect_ready() == 0) {
      int64_t earliest = 0;
      for (auto& task : tasks_) {
        const int64_t at = time_of(*task);
        if (at > 0 && (earliest == 0 || at < earliest)) earliest = at;
      }
      if (earliest == 0) return;
      logical_now_ = std::max(logical_now_, earliest);
      collect_ready();
    }
    random_ ^= random_ << 13, random_ ^= random_ >> 7, random_ ^= random_ << 17;  // xorshift64 (Marsaglia 2003)
    turn_ = ready_[random_ % ready_.size()];
    turn_->wake.notify_one();
  }

  // Runnable tasks, and waiting ones whose time has come.
  size_t collect_ready() {
    ready_.clear();
    for (auto& task : tasks_) {
      const int64_t at = time_of(*task);
      if (at > 0 && at <= logical_now_) wake_by_time(task.get());
      if (task->state == State::kRunnable) ready_.push_back(task.get());
    }
    return ready_.size();
  }

  void pass_turn(std::unique_lock<std::mutex>& lock) {
    if (!turns_ || stopped_) return;
    Task* task = current_;
    if (task == nullptr || turn_ != task) return;  // a call from outside the tasks
    logical_now_ += 1;                             // every turn takes a nanosecond of logical time
    give_turn();
    if (turn_ == task) return;
    task->wake.wait(lock, [&] { return has_turn(task); });
  }

  void stop_locked() {
    if (stopped_) return;
    stopped_ = true;
    stopped_early_ = live_ > 0;
    for (auto& task : tasks_) {
      if (task->state == State::kBlocked || task->state == State::kSleeping) {
        task->state = State::kRunnable;
        ++runnable_;
      }
      task->wake.notify_all();
    }
    supervisor_.notify_all();
  }

  void join() {
    // Tasks may spawn while unwinding: index, not iterator. Stopped tasks only return.
    for (size_t i = 0;; ++i) {
      Task* task = nullptr;
      {
        std::unique_lock lock(mutex_);
        if (i >= tasks_.size()) return;
        task = tasks_[i].get();
      }
      if (task->thread.joinable()) task->thread.join();
    }
  }

  bool stuck_locked() const {
    if (runnable_ > 0 || live_ == 0) return false;
    bool waits = false;
    for (const auto& task : tasks_) {
      if (time_of(*task) > 0) return false;
      waits |= task->state == State::kBlocked && !task->why.idle;
    }
    return waits;
  }

  StallSnapshot snapshot_locked(bool by_time) const {
    StallSnapshot snapshot;
    snapshot.by_time = by_time;
    snapshot.at_ns = realtime_ns();
    for (const auto& task : tasks_)
      if (task->state == State::kBlocked) snapshot.blocked.push_back({task->role, task->why.what, task->why.idle});
    return snapshot;
  }

  // The thread of run(): waits for the end, a stall, or an interruption.
  RunEnd supervise() {
    std::unique_lock lock(mutex_);
    for (;;) {
      if (stopped_early_) return RunEnd::kStopped;
      if (live_ == 0) return RunEnd::kCompleted;
      const bool proved = stuck_locked();
      const bool timed_out = monotonic_ns() - last_beat_ns_.load(std::memory_order_relaxed) > stall_timeout_ns &&
                             kernels_.load(std::memory_order_relaxed) == 0;
      if (proved || timed_out) {
        const StallSnapshot snapshot = snapshot_locked(!proved);
        lock.unlock();
        if (on_stall) on_stall(snapshot);
        return RunEnd::kStalled;
      }
      lock.unlock();
      const bool stop_now = interrupted && interrupted();
      lock.lock();
      if (stop_now) return RunEnd::kStopped;
      if (live_ == 0 || stopped_ || stuck_locked()) continue;
      supervisor_.wait_for(lock,
                           std::chrono::nanoseconds(std::clamp<int64_t>(stall_timeout_ns / 4, 1'000'000, 50'000'000)));
    }
  }

  const bool turns_;
  mutable std::mutex mutex_;
  std::condition_variable supervisor_;
  std::vector<std::unique_ptr<Task>> tasks_;
  std::vector<Task*> waiting_to_start_;
  Task* turn_ = nullptr;
  std::vector<Task*> ready_;  // scratch of give_turn
  uint64_t random_;
  int64_t logical_now_ = 0;
  int runnable_ = 0, live_ = 0;
  bool running_ = false;
  bool stopped_early_ = false;        // before every task that counts had returned
  std::atomic<bool> stopped_{false};  // set under the lock
  std::atomic<int64_t> last_beat_ns_{0};
  std::atomic<int> kernels_{0};
};

thread_local Task* SchedImpl::current_ = nullptr;

std::unique_ptr<Sched> Sched::free_threads() { return std::make_unique<SchedImpl>(false, 0); }
std::unique_ptr<Sched> Sched::turns(uint64_t seed) { return std::make_unique<SchedImpl>(true, seed); }

}  // namespace ringscope
