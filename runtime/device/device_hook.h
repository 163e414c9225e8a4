// DeviceHook: what may stand between a rank's program and its device. Every launch, record, wait and host wait passes
// it; without one (the usual case) they go straight to the device. The hook decides what is issued in their place.
// Thread rule: called on the rank's host task.
#pragma once

#include <functional>
#include <span>

namespace ringscope {

class Event;
class Stream;
class Tensor;

struct Launch {
  Stream& stream;
  const char* name;  // a literal
  std::span<const Tensor> reads, writes;
  std::function<void()> fn;  // holds no accounts (tensor.h)
};

class DeviceHook {
 public:
  virtual ~DeviceHook() = default;
  virtual void launch(Launch) = 0;
  virtual void record(Event&, Stream&) = 0;
  virtual void wait(Stream&, const Event&) = 0;

  // Before the host waits for a stream. kGo: it waits. kEnded: the program is over, the wait says "stopped". kPretend:
  // nothing was issued; there is nothing to wait for, and every value reads as zero.
  enum class HostWait { kGo, kEnded, kPretend };
  virtual HostWait host_wait() = 0;
};

}  // namespace ringscope
