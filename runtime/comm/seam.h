// Seam: what may stand between a rank's host program and everything that it uses: its device (DeviceHook), its
// communicators, and the few decisions that the program takes by itself. Null, the usual case = nothing does.
// Thread rule: the rank's host task.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/device/device_hook.h"
#include "runtime/layout/layout.h"
#include "tracedb/model/where.h"

namespace ringscope {

// A column of a batch on its way to the device: one value per local token of CP rank `cp`, taken from `rows` of the
// whole sequence; `shift` is added to values that are not negative.
struct Upload {
  const char* name;  // a literal: "batch.position"
  int cp = 0;
  std::vector<int32_t> rows;
  int32_t shift = 0;
};

class Seam : public DeviceHook {
 public:
  // Before the i-th communicator is created; the axes from i on may change places.
  virtual void creating(std::vector<Axis>& axes, size_t i) = 0;
  virtual std::unique_ptr<Communicator> wrap(std::unique_ptr<Communicator>) = 0;
  virtual void upload(Upload&, const SequenceSplit&) = 0;

  // Set when the program ended before its time. `witnessed`: somebody was there to write down how.
  struct Ended {
    bool witnessed = true;
    Where where;
  };
  virtual const std::optional<Ended>& ended() const = 0;
};

}  // namespace ringscope
