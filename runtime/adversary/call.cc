#include "runtime/adversary/call.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace ringscope {
namespace {

bool is_p2p(CollFunc func) { return func == CollFunc::kSend || func == CollFunc::kRecv; }
bool reduces(CollFunc func) { return func == CollFunc::kAllReduce || func == CollFunc::kReduceScatter; }

int64_t count_from(CollFunc func, int size, int64_t in, int64_t out) {
  switch (func) {
    case CollFunc::kAllGather: return std::min(in, out / size);
    case CollFunc::kReduceScatter: return std::min(in / size, out);
    case CollFunc::kAllToAll: return std::min(in, out) / size;
    default: return std::min(in, out);
  }
}

int number(const std::string& text) {
  int out = 0;
  std::from_chars(text.data(), text.data() + text.size(), out);
  return out;
}

template <class E>
E word(const std::string& text, std::initializer_list<E> values) {
  return *std::find_if(values.begin(), values.end(), [&](E value) { return text == name(value); });
}

DType dtype_of(const std::string& text) {
  return text == "int32" ? DType::kI32 : text == "int64" ? DType::kI64 : word(text, {DType::kF32, DType::kF64});
}

int64_t most(const CallShape& call) {
  const int64_t element = size_of(call.dtype);
  return count_from(call.func, call.size, call.in_bytes / element, call.out_bytes / element);
}

Status change_func(CallShape& call, const std::string& value) {
  const CollFunc func = word(value, {CollFunc::kAllReduce, CollFunc::kAllGather, CollFunc::kReduceScatter,
                                     CollFunc::kBroadcast, CollFunc::kAllToAll, CollFunc::kSend, CollFunc::kRecv});
  if (func == call.func) return usage_error(fmt::format("the call is an {} already", value));
  call.func = func;
  call.redop = reduces(func) ? RedOp::kSum : RedOp::kNone;
  // As root this rank could send what its peers wait for, and nothing would show: another one is the root.
  call.root = func == CollFunc::kBroadcast ? (call.rank == 0 ? 1 : 0) : -1;
  if (!is_p2p(func)) call.peer = -1;
  else if (call.peer < 0) call.peer = (call.rank + 1) % call.size;
  call.count = most(call);
  return {};
}

Status change_count(CallShape& call, const std::string& value) {
  const int64_t count = value == "half" ? call.count / 2 : number(value);
  if (count == call.count) return usage_error(fmt::format("the call has {} elements already", count));
  if (count > call.count) return usage_error(fmt::format("the call has {} elements, {} do not fit", call.count, count));
  call.count = count;
  return {};
}

Status change_dtype(CallShape& call, const std::string& value) {
  const DType dtype = dtype_of(value);
  if (dtype == call.dtype) return usage_error(fmt::format("the call is of {} already", value));
  const int64_t bytes = call.count * size_of(call.dtype);
  if (bytes % size_of(dtype)) return usage_error(fmt::format("{} bytes are no whole number of {}", bytes, value));
  call.dtype = dtype;
  call.count = bytes / size_of(dtype);
  return {};
}

Status change_rank(int& of_call, const std::string& value, const char* what, const CallShape& call, bool other) {
  const int rank = number(value);
  if (of_call < 0) return usage_error(fmt::format("the call has no {}", what));
  if (rank >= call.size)
    return usage_error(fmt::format("{} {} does not exist: the group has {} ranks", what, rank, call.size));
  if (other && rank == call.rank) return usage_error(fmt::format("{} {} is the rank itself", what, rank));
  if (rank == of_call) return usage_error(fmt::format("the {} is {} already", what, rank));
  of_call = rank;
  return {};
}

// The same call on another communicator; the rank's place there is not known here and not needed: peers are counted on.
Status change_comm(CallShape& call, const std::string& value, const CommSizes& sizes) {
  const Axis axis = word(value, {Axis::kTp, Axis::kCp, Axis::kDp});
  if (axis == call.axis) return usage_error(fmt::format("the call is on the {} communicator already", value));
  if (sizes[size_t(axis)] < 2) return usage_error(fmt::format("the job has no {} communicator", value));
  call.axis = axis;
  call.size = sizes[size_t(axis)];
  call.rank = -1;
  if (call.root >= 0) call.root = 0;
  call.count = std::min(call.count, most(call));
  return {};
}

}  // namespace

int64_t CallShape::in_count() const {
  switch (func) {
    case CollFunc::kReduceScatter:
    case CollFunc::kAllToAll: return count * size;
    case CollFunc::kRecv: return 0;
    default: return count;
  }
}
int64_t CallShape::out_count() const {
  switch (func) {
    case CollFunc::kAllGather:
    case CollFunc::kAllToAll: return count * size;
    case CollFunc::kSend: return 0;
    default: return count;
  }
}

CallShape shape_of(const Site& site) {
  CallShape call;
  call.func = site.func, call.dtype = site.dtype, call.redop = site.redop, call.root = site.root, call.peer = site.peer;
  call.axis = site.axis, call.size = site.size, call.rank = site.group_rank;
  call.in_bytes = site.in_count * size_of(site.dtype);
  call.out_bytes = site.out_count * size_of(site.dtype);
  call.count = count_from(site.func, site.size, site.in_count, site.out_count);
  return call;
}

Result<CallShape> changed(CallShape call, const Mutation& mutation, const CommSizes& sizes) {
  const std::string& value = mutation.value;
  Status status;
  switch (mutation.op) {
    case MutationOp::kFunc: status = change_func(call, value); break;
    case MutationOp::kCount: status = change_count(call, value); break;
    case MutationOp::kDtype: status = change_dtype(call, value); break;
    case MutationOp::kRedop: {
      const RedOp op = word(value, {RedOp::kSum, RedOp::kMax, RedOp::kMin, RedOp::kAvg});
      if (call.redop == RedOp::kNone) return usage_error("the call reduces nothing");
      if (call.redop == op) return usage_error(fmt::format("the call reduces by {} already", value));
      call.redop = op;
      break;
    }
    case MutationOp::kRoot: status = change_rank(call.root, value, "root", call, false); break;
    case MutationOp::kPeer: status = change_rank(call.peer, value, "peer", call, true); break;
    case MutationOp::kComm: status = change_comm(call, value, sizes); break;
    default: break;
  }
  if (!status) return tl::unexpected(status.error());
  if (call.count < 1) return usage_error("nothing would be left of the call");
  if (call.redop != RedOp::kNone && call.dtype != DType::kF32 && call.dtype != DType::kF64)
    return usage_error("reductions are of fp32 or fp64");
  return call;
}

void issue(const Call& call, Communicator& comm) {
  const CallShape& s = call.shape;
  const Tensor in = call.in.reread(s.dtype, s.in_count()), out = call.out.reread(s.dtype, s.out_count());
  const int peer = s.rank < 0 ? (comm.rank() + 1) % comm.size() : s.peer;  // of a call that came from another group
  switch (s.func) {
    case CollFunc::kAllReduce: return comm.all_reduce(*call.stream, in, out, s.redop, call.name);
    case CollFunc::kAllGather: return comm.all_gather(*call.stream, in, out, call.name);
    case CollFunc::kReduceScatter: return comm.reduce_scatter(*call.stream, in, out, s.redop, call.name);
    case CollFunc::kBroadcast: return comm.broadcast(*call.stream, out, s.root, call.name);
    case CollFunc::kAllToAll: return comm.all_to_all(*call.stream, in, out, call.name);
    case CollFunc::kSend: return comm.send(*call.stream, in, peer, call.name);
    default: return comm.recv(*call.stream, out, peer, call.name);
  }
}

}  // namespace ringscope
