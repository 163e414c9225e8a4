// A call of a communicator as a value: what it asks for, what it could ask for instead within its own buffers.
#pragma once

#include <array>
#include <string_view>

#include "runtime/comm/communicator.h"
#include "runtime/fault/mutation.h"

namespace ringscope {

// Members of this rank's communicators by axis kTp, kCp, kDp; 0 = there is none.
using CommSizes = std::array<int, 3>;

struct CallShape {
  CollFunc func = CollFunc::kUnknown;
  DType dtype = DType::kNone;
  RedOp redop = RedOp::kNone;
  int root = -1, peer = -1;
  Axis axis = Axis::kUnknown;           // whose communicator it goes to
  int size = 0, rank = 0;               // of that communicator
  int64_t count = 0;                    // as the library counts: elements of one rank's part
  int64_t in_bytes = 0, out_bytes = 0;  // of the tensors handed over: what a changed call must stay inside

  int64_t in_count() const;   // elements that it reads, 0 = none
  int64_t out_count() const;  // elements that it writes
};
CallShape shape_of(const Site& site);

// The call after one of func, count, dtype, redop, root, peer, comm. kUsage: a reason why it cannot be.
Result<CallShape> changed(CallShape call, const Mutation& mutation, const CommSizes& sizes);

struct Call {
  CallShape shape;
  Stream* stream = nullptr;
  Tensor in, out;  // as handed over; send and broadcast: both the same
  const char* name = "";
};
// Makes the call on the communicator of its axis.
void issue(const Call& call, Communicator& comm);

}  // namespace ringscope
