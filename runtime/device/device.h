// Device: one rank's accelerator, here threads on the CPU. Streams, events, memory, and launch(), the one way
// to run a kernel. The semantics are CUDA's:
//   - a stream runs its operations in order; two streams are unordered unless an event orders them;
//   - launch enqueues and returns; the host runs ahead;
//   - record() marks the work enqueued so far; wait() binds the last record *enqueued* before the call;
//     waiting on a never-recorded event is a no-op;
//   - memory goes back when no queued operation names it any more; the peak is counted in host order.
// Every call that orders or touches memory is recorded (recorder), in host order.
// Lifetime: a device, and everything that a queued operation may touch, outlives the sched's run.
// Thread rule: all methods belong to the rank's host task, except where a comment says otherwise.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/device/device_hook.h"
#include "runtime/device/tensor.h"
#include "runtime/sched/sched.h"
#include "tracedb/model/where.h"

namespace ringscope {

class DeviceMemory;
class Stream;

// An operation in a stream's queue. run() does the work on the worker; false = stopped or aborted: the stream is
// then dead, what is queued never runs and gets no end records, and waiting for it fails.
struct StreamOp {
  const char* name = "";      // a literal: of the NVTX range around run
  Where where;                // of the call
  uint64_t bytes = 0;         // touched or moved, for that range
  std::vector<uint64_t> ids;  // op ids with start/end records around run (none for markers)
  std::function<bool()> run;
  bool ends_itself = false;                    // run writes the end records (operations of a group end one by one)
  bool counts_as_kernel = true;                // keeps the stall-by-time watchdog quiet while it runs
  std::function<uint64_t(size_t)> bytes_sent;  // by index in ids; empty = 0
};

// Snapshot semantics of cudaEvent_t. Cheap to create; a copy keeps the record that it was copied with.
class Event {
 public:
  Event() = default;
  bool recorded() const { return stream_ != nullptr; }
  const char* name() const { return name_; }
  uint64_t key() const { return key_; }  // of the record that it holds, 0 = none

 private:
  friend class Device;
  uint64_t id_ = 0;
  uint64_t key_ = 0;          // of the last record, 0 = never
  Stream* stream_ = nullptr;  // recorded on
  uint64_t position_ = 0;     // operations of stream_ that must be done
  const char* name_ = "";
};

class Stream {
 public:
  uint16_t id() const { return id_; }  // unique in the job
  const char* name() const { return name_; }

 private:
  friend class Device;
  Stream() = default;
  struct State;
  std::shared_ptr<State> state_;  // shared with the worker
  uint16_t id_ = 0;
  const char* name_ = "";
};

struct MemoryCounter {
  int64_t live = 0, peak = 0;  // bytes
};

class Device {
 public:
  // rank: global; world: ranks in the job (stream and buffer ids are made unique with them).
  Device(Sched& sched, int rank, int world);
  ~Device();

  Sched& sched() { return sched_; }
  int rank() const { return rank_; }

  // A stream with a worker task ("rank3.cp"). name is a literal.
  Stream& create_stream(const char* name);
  Stream* find_stream(std::string_view name);  // null = there is none

  // Where what the host does without a stream is recorded: the id of the rank's first one, there or not.
  uint16_t first_lane() const { return uint16_t(rank_ * 8); }

  // Contents are undefined: filled with 0xFF bytes, a NaN, so that a missing write shows.
  Tensor allocate(DType, std::initializer_list<int64_t> shape, MemCategory, const char* name);

  // Runs fn on the stream. reads and writes are byte ranges for the race detector; a tensor in both is
  // read-write. fn must touch nothing else. Tensors named or captured stay alive until it ran.
  template <class F>
  void launch(Stream& stream, const char* name, std::span<const Tensor> reads, std::span<const Tensor> writes,
              const F& fn) {
    launch_closure(stream, name, reads, writes, without_accounts(fn));
  }
  template <class F>
  void launch(Stream& stream, const char* name, std::initializer_list<Tensor> reads,
              std::initializer_list<Tensor> writes, const F& fn) {
    launch(stream, name, std::span<const Tensor>(reads.begin(), reads.size()),
           std::span<const Tensor>(writes.begin(), writes.size()), fn);
  }

  // A copy of a closure whose tensors hold no account (tensor.h): what a queue may keep.
  template <class F>
  static std::function<void()> without_accounts(const F& fn) {
    Buffer::DropAccounts mark;
    return [copy = std::make_shared<F>(fn)] { (*copy)(); };
  }

  Event create_event(const char* name);
  void record(Event&, Stream&);
  void wait(Stream&, const Event&);
  // What `second` gets from now on comes after what `first` holds now: an event recorded and waited for. One stream
  // for both: nothing.
  void order(Stream& first, Stream& second, const char* event_name);

  // Blocks the host until the stream drained; false = stopped, or the stream died. Read-back points call this, then
  // look.
  [[nodiscard]] bool synchronize(Stream&);

  // Copies a tensor to the host at a named read-back point (a literal): synchronizes the stream, then reads as double.
  // Recorded as an operation of the host (OpKind::kHostRead) with the bytes that it reads. Empty = as above.
  [[nodiscard]] std::vector<double> read_back(Stream&, const Tensor&, const char* point);

  // For communicators: enqueue an operation with its own records. `accesses` are (tensor, mode) pairs recorded
  // for ids[i] by the caller through record_access.
  void enqueue(Stream&, StreamOp op);
  void record_access(uint64_t op, const Tensor&, AccessMode);

  // The name id of a literal (cached by address); 0 when nothing is recorded.
  uint32_t intern(const char* literal);

  // The place that goes into every record of this rank; set by ScopedWhere.
  Where& where() { return where_; }

  const MemoryCounter& memory(MemCategory) const;
  MemoryCounter memory_total() const;
  void reset_peak();

  // Stops this rank's workers before their next operation (an exited rank).
  void kill_workers();

  // Null = none. Outlives the device's last call.
  void set_hook(DeviceHook* hook) { hook_ = hook; }
  // What launch, record and wait do in the end; for hooks.
  void issue(Launch launch);
  void issue_record(Event&, Stream&);
  void issue_wait(Stream&, const Event&);

 private:
  friend class Buffer;
  void launch_closure(Stream&, const char* name, std::span<const Tensor> reads, std::span<const Tensor> writes,
                      std::function<void()> fn);
  void on_free(const Buffer::Account&);  // the host let go
  void on_unused(Buffer&);               // nothing names the memory any more
  void worker(Stream::State& state, int stream_id, std::string name);
  void push(Stream&, StreamOp op);
  void emit_sync(SyncKind, uint16_t lane, uint64_t event, uint64_t key, const char* name);
  void retire(Stream&);
  bool drain(Stream&);

  Sched& sched_;
  int rank_, world_;
  DeviceHook* hook_ = nullptr;
  std::unique_ptr<DeviceMemory> memory_;
  std::vector<std::unique_ptr<Stream>> streams_;
  std::unordered_map<const void*, uint32_t> interned_;  // by address: names are literals
  uint64_t next_buffer_ = 1, next_event_ = 1, next_key_ = 1;
  Where where_;
};

// Sets parts of the place for a scope: ScopedWhere w(device, [](Where& p) { p.layer = 3; });
class ScopedWhere {
 public:
  template <class Change>
  ScopedWhere(Device& device, Change change) : device_(device), saved_(device.where()) {
    change(device.where());
  }
  ~ScopedWhere() { device_.where() = saved_; }
  ScopedWhere(const ScopedWhere&) = delete;

 private:
  Device& device_;
  Where saved_;
};

}  // namespace ringscope
