// The loader: cuts whole sequences into what one rank needs and puts it on the device. Positions, rows,
// documents and labels all come from layout; the positions made here are recorded (role "data").
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

  // Uploads the rank's shard of the sequences and records the positions.
  ModelBatch load(const std::vector<Sequence>& sequences);
  int64_t counted(const std::vector<Sequence>& sequences) const;  // labels in this rank's shard

  // At the end of a step: reads back the positions that the kernels were given and records them as applied.
  // False = stopped.
  [[nodiscard]] bool record_applied(const ModelBatch&, const std::vector<Sequence>& sequences);

 private:
  template <class ValueOf>
  std::vector<int32_t> column(const char* name, int cp, const std::vector<Sequence>& sequences, ValueOf value_of) const;
  std::vector<int32_t> data_positions(const std::vector<Sequence>& sequences) const;
  void record(PositionRole role, const std::vector<Sequence>& sequences, const std::vector<int32_t>& positions,
              float rope_base) const;
  RankContext& ctx_;
  SequenceSplit split_;
};

}  // namespace ringscope
