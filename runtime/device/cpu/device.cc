// The CPU device: a worker task per stream, queues of closures, events as positions in a queue.
#include "runtime/device/device.h"

#include <deque>

#include "probes/nvtx/emit.h"
#include "probes/recorder/emit.h"
#include "runtime/device/inside_launch.h"
#include "runtime/device/memory.h"
#include "tracedb/base/check.h"

namespace ringscope {
namespace {

// Ids are unique in the job: the rank in the high bits.
uint64_t job_id(int rank, uint64_t n) { return uint64_t(rank) << 40 | n; }

uint64_t bytes_of(std::span<const Tensor> tensors) {
  uint64_t bytes = 0;
  for (const Tensor& tensor : tensors) bytes += uint64_t(tensor.bytes());
  return bytes;
}

}  // namespace

// `done`, `alive` and the queue change inside sched's update only.
struct Stream::State {
  Channel channel;
  std::deque<StreamOp> queue;
  std::vector<StreamOp> finished;  // kept so that closures die on the host's thread
  uint64_t enqueued = 0;           // host side
  uint64_t done = 0;               // operations completed
  bool alive = true;
};

Buffer::~Buffer() { device_->on_unused(*this); }
Buffer::Account::~Account() { device->on_free(*this); }

uint32_t Device::intern(const char* literal) {
  if (!rs_enabled()) return 0;
  uint32_t& id = interned_[literal];
  if (id == 0) id = rs_intern(literal);
  return id;
}

Device::Device(Sched& sched, int rank, int world)
    : sched_(sched), rank_(rank), world_(world), memory_(std::make_unique<DeviceMemory>()) {}

// After the run: no worker is left. Queued closures hold tensors that hold this device's memory.
Device::~Device() {
  for (auto& stream : streams_) {
    stream->state_->queue.clear();
    stream->state_->finished.clear();
  }
}

Stream& Device::create_stream(const char* name) {
  RS_CHECK(streams_.size() < 8 && rank_ < 8192, "stream ids hold 8 streams for each of 8192 ranks");
  streams_.push_back(std::unique_ptr<Stream>(new Stream));
  Stream& stream = *streams_.back();
  stream.state_ = std::make_shared<Stream::State>();
  stream.id_ = uint16_t(rank_ * 8 + int(streams_.size()) - 1);
  stream.name_ = name;
  emit(RecordKind::kStream, StreamRecord{intern(name)}, stream.id_);
  const std::string role = "rank" + std::to_string(rank_) + "." + name;
  sched_.spawn(
      role, [this, state = stream.state_, id = stream.id_, role] { worker(*state, id, role); }, true);
  return stream;
}

Stream* Device::find_stream(std::string_view name) {
  for (const auto& stream : streams_)
    if (name == stream->name()) return stream.get();
  return nullptr;
}

// Runs operations in order until the stream is killed or the run stops. A stopped operation leaves no end record:
// that is what a hang looks like in the trace.
void Device::worker(Stream::State& state, int stream_id, std::string name) {
  rs_thread_attach(rank_, name.c_str());
  const uint16_t lane = uint16_t(stream_id);
  for (;;) {
    StreamOp* op = nullptr;
    const bool more = sched_.block_until(state.channel,
                                         [&] {
                                           if (!state.alive) return true;
                                           if (!state.queue.empty()) op = &state.queue.front();
                                           return op != nullptr;
                                         },
                                         {"a worker without work", true});
    if (!more || op == nullptr) break;
    sched_.yield();
    if (sched_.stopped()) break;
    for (uint64_t id : op->ids) emit(RecordKind::kOpStart, OpStartRecord{id}, lane);
    sched_.beat();
    if (op->counts_as_kernel) sched_.kernel_begin();
    bool finished = false;
    {
      InsideLaunch mark;
      const nvtx::Range range(op->name, op->where, op->bytes);
      finished = op->run();
    }
    if (op->counts_as_kernel) sched_.kernel_end();
    if (!finished) break;
    if (!op->ends_itself)
      for (size_t i = 0; i < op->ids.size(); ++i)
        emit(RecordKind::kOpEnd, OpEndRecord{op->ids[i], op->bytes_sent ? op->bytes_sent(i) : 0}, lane);
    sched_.beat();
    sched_.update(state.channel, [&] {
      state.finished.push_back(std::move(state.queue.front()));
      state.queue.pop_front();
      ++state.done;
    });
  }
  // Whoever waits for this stream is told that it is dead. What is queued stays until the device goes: peers may
  // still be reading what an operation of ours posted.
  sched_.update(state.channel, [&] { state.alive = false; });
  rs_thread_detach();
}

// Destroys the closures of finished operations, on the host's thread.
void Device::retire(Stream& stream) {
  std::vector<StreamOp> finished;
  sched_.update(stream.state_->channel, [&] { finished.swap(stream.state_->finished); });
}

void Device::push(Stream& stream, StreamOp op) {
  Stream::State& state = *stream.state_;
  std::vector<StreamOp> finished;
  sched_.update(state.channel, [&] {
    finished.swap(state.finished);
    if (state.alive) state.queue.push_back(std::move(op));
    ++state.enqueued;
  });
}

void Device::enqueue(Stream& stream, StreamOp op) { push(stream, std::move(op)); }

Tensor Device::allocate(DType dtype, std::initializer_list<int64_t> shape, MemCategory category, const char* name) {
  Tensor tensor;
  tensor.dtype_ = dtype;
  for (int64_t extent : shape) tensor.shape_[tensor.rank_++] = extent;
  const int64_t bytes = tensor.bytes();
  std::shared_ptr<Buffer> buffer(new Buffer);
  buffer->device_ = this;
  buffer->id_ = job_id(rank_, next_buffer_++);
  buffer->bytes_ = bytes;
  buffer->category_ = category;
  buffer->base_ = memory_->take(bytes, category);
  if (rs_enabled()) {
    BufferAllocRecord record{};
    record.buffer = buffer->id_;
    record.base = uint64_t(reinterpret_cast<uintptr_t>(buffer->base_));
    record.bytes = uint64_t(bytes);
    record.category = uint32_t(category);
    record.name = intern(name);
    record.where = where_.pack();
    emit(RecordKind::kBufferAlloc, record);
  }
  tensor.account_ = std::make_shared<Buffer::Account>(*buffer);
  tensor.buffer_ = std::move(buffer);
  return tensor;
}

void Device::on_free(const Buffer::Account& account) {
  emit(RecordKind::kBufferFree, BufferFreeRecord{account.id}, kEveryStream);
  memory_->release_account(account.bytes, account.category);
}
void Device::on_unused(Buffer& buffer) { memory_->give_back(buffer.base_, buffer.bytes_); }

const MemoryCounter& Device::memory(MemCategory c) const { return memory_->category(c); }
MemoryCounter Device::memory_total() const { return memory_->total(); }
void Device::reset_peak() { memory_->reset_peak(); }

void Device::record_access(uint64_t op, const Tensor& t, AccessMode mode) {
  if (!rs_enabled() || t.bytes() == 0) return;
  AccessRecord record{};
  record.op = op;
  record.buffer = t.buffer()->id();
  record.begin = uint64_t(t.offset_bytes());
  record.end = uint64_t(t.offset_bytes() + t.bytes());
  record.mode = uint64_t(mode);
  emit(RecordKind::kAccess, record);
}

void Device::launch_closure(Stream& stream, const char* name, std::span<const Tensor> reads,
                            std::span<const Tensor> writes, std::function<void()> fn) {
  Launch launch{stream, name, reads, writes, std::move(fn)};
  if (hook_) hook_->launch(std::move(launch));
  else issue(std::move(launch));
}

void Device::issue(Launch launch) {
  StreamOp op;
  op.name = launch.name;
  op.where = where_;
  if (nvtx::available()) op.bytes = bytes_of(launch.reads) + bytes_of(launch.writes);
  if (rs_enabled()) {
    const uint64_t id = rs_next_op();
    OpEnqueueRecord record{};
    record.op = id;
    record.where = where_.pack();
    record.name = intern(launch.name);
    record.kind = uint16_t(OpKind::kKernel);
    emit(RecordKind::kOpEnqueue, record, launch.stream.id_);
    for (const Tensor& t : launch.reads) record_access(id, t, AccessMode::kRead);
    for (const Tensor& t : launch.writes) record_access(id, t, AccessMode::kWrite);
    op.ids.push_back(id);
  }
  op.run = [fn = std::move(launch.fn)] {
    fn();
    return true;
  };
  push(launch.stream, std::move(op));
}

Event Device::create_event(const char* name) {
  Event event;
  event.id_ = job_id(rank_, next_event_++);
  event.name_ = name;
  return event;
}

void Device::emit_sync(SyncKind kind, uint16_t lane, uint64_t event, uint64_t key, const char* name) {
  if (!rs_enabled()) return;
  SyncRecord record{};
  record.event = event;
  record.key = key;
  record.kind = uint32_t(kind);
  record.where = where_.pack();
  record.name = intern(name);
  emit(RecordKind::kSync, record, lane);
}

void Device::record(Event& event, Stream& stream) {
  if (hook_) hook_->record(event, stream);
  else issue_record(event, stream);
}

void Device::issue_record(Event& event, Stream& stream) {
  event.stream_ = &stream;
  event.key_ = job_id(rank_, next_key_++);
  event.position_ = stream.state_->enqueued;
  emit_sync(SyncKind::kRecord, stream.id_, event.id_, event.key_, event.name_);
}

void Device::wait(Stream& stream, const Event& event) {
  if (hook_) hook_->wait(stream, event);
  else issue_wait(stream, event);
}

void Device::issue_wait(Stream& stream, const Event& event) {
  emit_sync(SyncKind::kWait, stream.id_, event.id_, event.key_, event.name_);
  if (!event.recorded()) return;         // a no-op, as in CUDA
  if (event.stream_ == &stream) return;  // already in order
  StreamOp marker;
  marker.name = "event.wait";
  marker.where = where_;
  marker.counts_as_kernel = false;
  marker.run = [this, other = event.stream_->state_, position = event.position_] {
    bool reached = false;
    return sched_.block_until(other->channel,
                              [&] {
                                reached = other->done >= position;
                                return reached || !other->alive;
                              },
                              {"an event"}) &&
           reached;
  };
  push(stream, std::move(marker));
}

void Device::order(Stream& first, Stream& second, const char* event_name) {
  if (&first == &second) return;
  Event event = create_event(event_name);
  record(event, first);
  wait(second, event);
}

bool Device::synchronize(Stream& stream) {
  const auto told = hook_ ? hook_->host_wait() : DeviceHook::HostWait::kGo;
  if (told != DeviceHook::HostWait::kGo) return told == DeviceHook::HostWait::kPretend;
  return drain(stream);
}

bool Device::drain(Stream& stream) {
  emit_sync(SyncKind::kHostSync, stream.id_, 0, 0, stream.name_);
  Stream::State& state = *stream.state_;
  bool drained = false;
  const bool held = sched_.block_until(state.channel,
                                       [&] {
                                         drained = state.done >= state.enqueued;
                                         return drained || !state.alive;
                                       },
                                       {"a stream to drain"});
  if (!held || !drained) return false;
  for (auto& any : streams_) retire(*any);
  return true;
}

namespace {
template <class T>
std::vector<double> widened(const Tensor& t) {
  const T* data = t.data<T>();
  return {data, data + t.count()};
}
}  // namespace

std::vector<double> Device::read_back(Stream& stream, const Tensor& t, const char*) {
  const auto told = hook_ ? hook_->host_wait() : DeviceHook::HostWait::kGo;
  if (told == DeviceHook::HostWait::kPretend) return std::vector<double>(size_t(t.count()), 0.0);
  if (told == DeviceHook::HostWait::kEnded || !drain(stream)) return {};
  InsideLaunch mark;
  switch (t.dtype()) {
    case DType::kF32: return widened<float>(t);
    case DType::kF64: return widened<double>(t);
    case DType::kI32: return widened<int32_t>(t);
    case DType::kI64: return widened<int64_t>(t);
    default: break;
  }
  RS_CHECK(false, "no read-back for this type");
  return {};
}

void Device::kill_workers() {
  for (auto& stream : streams_) sched_.update(stream->state_->channel, [&] { stream->state_->alive = false; });
}

}  // namespace ringscope
