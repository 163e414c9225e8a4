#include "tracedb/model/enums.h"

#include <cstddef>

namespace ringscope {
namespace {
template <class E, size_t N>
const char* pick(const char* const (&names)[N], E value) {
  const auto index = static_cast<size_t>(value);
  return index < N ? names[index] : "unknown";
}
}  // namespace

const char* name(OpKind v) {
  static const char* const names[] = {"kernel",     "collective", "p2p",      "event_record",
                                      "event_wait", "host_read",  "comm_init"};
  return pick(names, v);
}
const char* name(CollFunc v) {
  static const char* const names[] = {"all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "gather",
                                      "scatter",    "all_to_all", "barrier",        "send",      "recv"};
  return pick(names, v);
}
const char* name(RedOp v) {
  static const char* const names[] = {"sum", "max", "min", "avg"};
  return v == RedOp::kNone ? "none" : pick(names, v);
}
const char* name(DType v) {
  static const char* const names[] = {"fp32", "fp64", "bf16", "int32", "int64", "uint8"};
  return v == DType::kNone ? "none" : pick(names, v);
}
const char* name(MemCategory v) {
  static const char* const names[] = {"parameter",   "gradient",    "optimizer", "activation", "kv_ring",
                                      "kv_gathered", "comm_buffer", "workspace", "input",      "statistics"};
  return pick(names, v);
}
const char* name(TensorRole v) {
  static const char* const names[] = {"gradient",         "parameter",        "local_gradient",   "attention_input",
                                      "attention_output", "gradient_over_tp", "gradient_over_cp", "moments"};
  return pick(names, v);
}
const char* name(StepQuantity v) {
  static const char* const names[] = {"loss_sum",  "counted",      "divisor",   "loss",        "grad_norm_sq", "clip",
                                      "rows_loss", "rows_counted", "rows_miss", "rows_labels", "loss_gradient"};
  return pick(names, v);
}
const char* name(Axis v) {
  static const char* const names[] = {"tp", "cp", "dp", "pp", "world", "tp_cp", "dp_cp"};
  return pick(names, v);
}
const char* name(OpState v) {
  static const char* const names[] = {"scheduled", "started", "completed"};
  return pick(names, v);
}
const char* name(AccessMode v) {
  switch (v) {
    case AccessMode::kRead: return "read";
    case AccessMode::kWrite: return "write";
    case AccessMode::kReadWrite: return "read_write";
    case AccessMode::kFree: return "free";
  }
  return "unknown";
}
const char* name(PositionRole v) {
  static const char* const names[] = {"data", "rope", "embedding", "mask"};
  return pick(names, v);
}

}  // namespace ringscope
