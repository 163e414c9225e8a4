#include "runtime/adversary/adversary.h"

#include <algorithm>
#include <charconv>
#include <cstring>

#include "probes/recorder/recorder.h"
#include "runtime/adversary/upload.h"

namespace ringscope {
namespace {

using Op = MutationOp;
using Part = Action::Part;

constexpr size_t kRecordsKept = 64;  // of one event's name

double real(const std::string& text) {
  double value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

bool is_statistics(const char* name) { return std::strncmp(name, "statistics.", 11) == 0; }

bool is_itself(const Action& action, Op op) { return action.part == Part::kItself && action.mutation->op == op; }
bool has(const std::vector<Action>& actions, Op op) {
  return std::any_of(actions.begin(), actions.end(), [&](const Action& a) { return is_itself(a, op); });
}

bool changes_call(Op op) { return Op::kFunc <= op && op <= Op::kComm; }

Site call_site(const Call& call, uint32_t group) {
  const CallShape& shape = call.shape;
  Site site;
  site.kind = SiteKind::kCall;
  site.name = call.name;
  site.stream = call.stream->name();
  site.axis = shape.axis, site.size = shape.size, site.group_rank = shape.rank;
  site.func = shape.func, site.redop = shape.redop, site.root = shape.root, site.peer = shape.peer;
  site.dtype = shape.dtype;
  site.in_count = call.in.count(), site.out_count = call.out.count();
  site.group = group;
  return site;
}

Site site_of(SiteKind kind, const char* name, const char* stream) {
  Site site;
  site.kind = kind;
  site.name = name;
  site.stream = stream;
  return site;
}

}  // namespace

// ---- coming to a site ---------------------------------------------------------------------------------------

const RankAdversary::Actions& RankAdversary::at(uint32_t index) const {
  static const Actions kNothing;
  if (!plan_) return kNothing;
  const auto found = plan_->at.find(index);
  return found == plan_->at.end() ? kNothing : found->second;
}

template <class Describe>
const RankAdversary::Actions* RankAdversary::come_to(Describe describe) {
  if (over_) return nullptr;
  const uint32_t index = next_++;
  if (listing()) {
    Site site = describe();
    site.rank = device_.rank();
    site.index = index;
    site.where = device_.where();
    site.after_host_wait = std::exchange(host_waited_, false);
    sites_.push_back(std::move(site));
    return nullptr;
  }
  const Actions& actions = at(index);
  for (const Action& action : actions)
    if (!over_) act_on_host(action);
  return over_ ? nullptr : &actions;
}

void RankAdversary::act_on_host(const Action& action) {
  Sched& sched = device_.sched();
  switch (action.mutation->op) {
    case Op::kExit: return end(true);
    case Op::kKill: return end(false);
    case Op::kHang:
      return stop_unless(sched.block_until(never_, [] { return false; }, {"a host that issues nothing more"}));
    case Op::kPause: return stop_unless(sched.sleep_until(sched.now() + int64_t(real(action.mutation->value) * 1e9)));
    default: return;
  }
}

// The run stopped while the host stood still: what its thread comes to from now on, it never did.
void RankAdversary::stop_unless(bool goes_on) {
  over_ = !goes_on;
  if (over_) rs_thread_mute(1);
}

// The thread goes on through its program, which does nothing any more and leaves no trace of it.
void RankAdversary::end(bool witnessed) {
  over_ = true;
  ended_ = Ended{witnessed, device_.where()};
  device_.kill_workers();
  rs_thread_mute(1);
}

DeviceHook::HostWait RankAdversary::host_wait() {
  if (listing()) {
    host_waited_ = true;
    return HostWait::kPretend;
  }
  return over_ ? HostWait::kEnded : HostWait::kGo;
}

// ---- the host program's own decisions -------------------------------------------------------------------------

void RankAdversary::creating(std::vector<Axis>& axes, size_t i) {
  const Actions* actions = come_to([&] {
    Site site = site_of(SiteKind::kCreate, "comm_init", "");
    site.axis = axes[i];
    return site;
  });
  if (actions && has(*actions, Op::kSwap)) std::swap(axes[i], axes[i + 1]);
}

std::unique_ptr<Communicator> RankAdversary::wrap(std::unique_ptr<Communicator> comm) {
  if (listing()) {
    sites_.back().size = comm->size();
    sites_.back().group_rank = comm->rank();
  }
  comms_[size_t(comm->axis())] = comm.get();
  return make_adversary_communicator(*this, std::move(comm));
}

void RankAdversary::upload(Upload& upload, const SequenceSplit& split) {
  const Actions* actions = come_to([&] { return site_of(SiteKind::kUpload, upload.name, ""); });
  if (!actions) return;
  for (const Action& action : *actions)
    if (action.part == Part::kItself) change_upload(upload, *action.mutation, split);
}

// ---- calls ----------------------------------------------------------------------------------------------------

bool RankAdversary::begin_group() {
  if (over_ || listing()) return true;
  mark_records(at(next_));
  return has(at(next_), Op::kSplit);
}

void RankAdversary::issue_call(const Call& call) {
  Communicator* comm = comms_[size_t(call.shape.axis)];
  if (!comm) return;
  issue(call, *comm);
  if (call.shape.out_count() > 0) note_written({&call.out, 1});
}

void RankAdversary::call(Call call, uint32_t group) {
  const uint32_t index = next_;
  const Actions* actions = come_to([&] { return call_site(call, group); });
  if (!actions) return;
  if (group == kNoGroup) mark_records(*actions);
  CommSizes sizes{};
  for (size_t axis = 0; axis < sizes.size(); ++axis) sizes[axis] = comms_[axis] ? comms_[axis]->size() : 0;
  std::vector<uint32_t> held;
  int times = 1;
  for (const Action& action : *actions) {
    const Op op = action.mutation->op;
    if (action.part == Part::kPartner && op == Op::kSwap) held.push_back(action.other);
    if (action.part != Part::kItself) continue;
    if (op == Op::kDrop) times = 0;
    if (op == Op::kTwice) times = std::min(2 * times, 2);
    if (changes_call(op))
      if (auto shape = changed(call.shape, *action.mutation, sizes)) call.shape = *shape;
  }
  const bool hold = has(*actions, Op::kSwap);
  if (hold) held_.insert_or_assign(index, Held{call, device_.where()});
  for (int i = 0; i < times && !hold; ++i) issue_call(call);
  for (const uint32_t before : held)
    if (const auto found = held_.find(before); found != held_.end()) {
      // A program that makes the two in the other order knows what each of them is.
      const ScopedWhere place(device_, [&](Where& where) { where = found->second.where; });
      issue_call(found->second.call);
      held_.erase(found);
    }
}

// ---- launches ---------------------------------------------------------------------------------------------------

void RankAdversary::launch(Launch launch) {
  if (is_statistics(launch.name)) {
    if (!over_ && !listing() && !reads_dropped(launch.reads)) device_.issue(std::move(launch));
    return;
  }
  const uint32_t index = next_;
  const Actions* actions = come_to([&] {
    Site site = site_of(SiteKind::kKernel, launch.name, launch.stream.name());
    site.outputs = outputs_of(launch);
    return site;
  });
  if (!actions) return;
  mark_records(*actions);
  int times = 1;
  for (const Action& action : *actions) {
    const Mutation& mutation = *action.mutation;
    if (action.part == Part::kPartner) {
      if (mutation.op != Op::kPrevious) continue;
      KeptOutput& keep = kept_[action.other];
      keep = std::make_shared<KeptOutput::element_type>();
      launch.fn = with_kept_output(launch, keep);
      continue;
    }
    switch (mutation.op) {
      case Op::kDrop: times = 0; break;
      case Op::kTwice: times = std::min(2 * times, 2); break;
      case Op::kScale:
      case Op::kShift:
      case Op::kZero:
      case Op::kNan:
      case Op::kInput: launch.fn = with_changed_output(launch, mutation.op, real(mutation.value)); break;
      case Op::kPrevious:
        if (const auto kept = kept_.find(index); kept != kept_.end()) {
          launch.fn = with_previous_output(launch, kept->second);
          kept_.erase(kept);
        }
        break;
      default: break;
    }
  }
  if (times == 0) note_dropped(launch);
  else note_written(launch.writes);
  for (int i = 0; i < times; ++i) device_.issue(launch);
}

void RankAdversary::note_dropped(const Launch& launch) {
  for (const Tensor& t : launch.writes) {
    // What lasts from step to step holds the values of the step before, and what is added to those that were there: they are
    // an observation.
    const MemCategory category = t.buffer()->category();
    const bool adds = std::any_of(launch.reads.begin(), launch.reads.end(), [&](const Tensor& read) {
      return read.buffer() == t.buffer() && read.offset_bytes() == t.offset_bytes() && read.bytes() == t.bytes();
    });
    if (adds || category == MemCategory::kParameter || category == MemCategory::kGradient ||
        category == MemCategory::kOptimizer)
      continue;
    dropped_.push_back({t.buffer()->id(), t.offset_bytes(), t.offset_bytes() + t.bytes()});
  }
}

void RankAdversary::note_written(std::span<const Tensor> writes) {
  if (dropped_.empty()) return;
  for (const Tensor& t : writes)
    std::erase_if(dropped_, [&](const Range& range) {
      return range.buffer == t.buffer()->id() && range.begin < t.offset_bytes() + t.bytes() &&
             t.offset_bytes() < range.end;
    });
}

bool RankAdversary::reads_dropped(std::span<const Tensor> reads) const {
  return std::any_of(reads.begin(), reads.end(), [&](const Tensor& t) {
    return std::any_of(dropped_.begin(), dropped_.end(), [&](const Range& range) {
      return range.buffer == t.buffer()->id() && range.begin < t.offset_bytes() + t.bytes() &&
             t.offset_bytes() < range.end;
    });
  });
}

// ---- events -------------------------------------------------------------------------------------------------------

void RankAdversary::mark_records(const Actions& actions) {
  for (const Action& action : actions) {
    if (action.part != Part::kPartner || action.mutation->op != Op::kEarly) continue;
    Event event = device_.create_event(action.event);
    device_.issue_record(event, *device_.find_stream(action.stream));
    marked_.insert_or_assign(action.other, event);
  }
}

void RankAdversary::remember(const Event& event) {
  std::vector<Event>& records = records_[event.name()];
  if (records.size() == kRecordsKept) records.erase(records.begin());
  records.push_back(event);
}

const Event* RankAdversary::record_before(const char* name, uint64_t key) const {
  const auto found = records_.find(name);
  if (found == records_.end() || found->second.empty()) return nullptr;
  const std::vector<Event>& records = found->second;
  if (key == 0) return &records.back();
  for (size_t i = 1; i < records.size(); ++i)
    if (records[i].key() == key) return &records[i - 1];
  return nullptr;
}

void RankAdversary::record(Event& event, Stream& stream) {
  const uint32_t index = next_;
  const Actions* actions = come_to([&] { return site_of(SiteKind::kRecord, event.name(), stream.name()); });
  if (!actions || has(*actions, Op::kNever) || has(*actions, Op::kDrop)) return;
  if (has(*actions, Op::kStale)) {
    if (const Event* before = record_before(event.name(), 0)) event = *before;
    return;
  }
  const auto marked = marked_.find(index);
  if (marked != marked_.end()) event = marked->second;
  else device_.issue_record(event, stream);
  remember(event);
}

void RankAdversary::wait(Stream& stream, const Event& event) {
  const Actions* actions = come_to([&] { return site_of(SiteKind::kWait, event.name(), stream.name()); });
  if (!actions || has(*actions, Op::kDrop)) return;
  Stream* waiting = &stream;
  const Event* waited = &event;
  for (const Action& action : *actions) {
    if (is_itself(action, Op::kStream)) waiting = device_.find_stream(action.mutation->value);
    if (is_itself(action, Op::kStale))
      if (const Event* before = record_before(event.name(), event.key())) waited = before;
  }
  device_.issue_wait(*waiting, *waited);
}

}  // namespace ringscope
