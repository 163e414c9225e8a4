// The loader: cuts whole sequences into what one rank needs and puts it on the device. Positions, rows,
// documents and labels all come from layout; what is made here is recorded, and so is what then lies on the device.
#pragma once

#include <vector>

#include "runtime/layout/layout.h"
#include "runtime/model/batch.h"
#include "runtime/model/context.h"

namespace ringscope {

// One whole sequence, unpadded arrays of split.length() entries; empty = an idle sample (padding only).
struct Sequence {
  std::vector<int32_t> tokens, labels;  // labels: kNoLabel = not counted
  SequenceInfo info;                    // padded length
  int32_t sample = 0;                   // global index in the step
};

class Loader {
 public:
  Loader(RankContext& ctx, SequenceSplit split) : ctx_(ctx), split_(split) {}

  // Uploads the rank's shard of the sequences and records it.
  ModelBatch load(const std::vector<Sequence>& sequences);
  int64_t counted(const std::vector<Sequence>& sequences) const;  // labels in this rank's shard

 private:
  template <class ValueOf>
  std::vector<int32_t> column(const char* name, int cp, const std::vector<Sequence>& sequences, ValueOf value_of) const;
  std::vector<int32_t> data_positions(const std::vector<Sequence>& sequences) const;
  // What was made and what the device holds of it, for the trace; and what later records compare with.
  void record_batch(ModelBatch& batch, const std::vector<Sequence>& sequences) const;
  RankContext& ctx_;
  SequenceSplit split_;
};

}  // namespace ringscope
