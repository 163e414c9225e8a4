// AttentionRows: of every attention call one query row of one head, as the kernels put it out, and computed again in fp64
// from the very q, K and V that they were given and from the mask of the layout: the trace's attention_row table. What
// the kernels do wrong and what a merge or a reduction makes wrong of right parts differ from it. Rows of what came from
// another rank carry a checksum of its bytes, so that a block that is not its owner's shows.
//
// With the recorder off every call returns at once. Thread rule: the rank's host task; the arithmetic and the record are
// a launch's, on its stream.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/device/device.h"
#include "tracedb/model/record.h"

namespace ringscope {

struct AttentionBatch;
struct SampledRow;

// What the layout says of the tokens of one microbatch, by CP rank, each [batch x shard]: never what a device was given.
struct LayoutTokens {
  int64_t batch = 1;
  std::vector<std::vector<int32_t>> row, document;
  std::vector<int32_t> sample;  // [batch], global index in the step
};

class AttentionRows {
 public:
  static constexpr int kAllKeys = 0xFFFF;  // kv_owner of a whole row

  AttentionRows(Device& device, int first_head) : device_(device), first_head_(first_head) {}

  // Whose rows an attention call computes, with which keys, and how many blocks of keys there are.
  struct Call {
    const AttentionBatch& batch;
    int parts = 1;
    SoftmaxMethod method = SoftmaxMethod::kLseMerge;
  };
  // One block of keys against the queries of one shard.
  struct Part {
    int shard = 0;          // CP rank whose queries q are
    int owner = 0;          // CP rank whose keys these are
    Tensor q;               // [T,HQ,D]
    Tensor kv;              // [2, batch x blocks x shard, HK, D]
    int64_t blocks = 1;     // blocks that lie beside each other in kv
    int64_t at = 0;         // which of them
    bool sum_of_q = false;  // the checksum is of q: queries travel, keys stay
  };
  void recompute(Stream&, const Call&, const std::vector<Part>& parts);

  // The same rows as a kernel put them out: m (may be undefined) and lse fp64 [T,HQ], o [T,HQ,D].
  void put_out(Stream&, const Call&, int shard, int owner, const Tensor& m, const Tensor& lse, const Tensor& o);
  // As pieces of three steps: u = sum exp(s - m_used) v and z = sum exp(s - m_used), both of the own keys.
  struct Piece {
    int shard = 0;
    Tensor m_used, z, u;
  };
  void put_out_pieces(Stream&, const Call&, int owner, const std::vector<Piece>& pieces);

 private:
  // The row of a shard that this call looks at; null = none.
  const SampledRow* row(const Call&, int shard) const;
  AttentionRowRecord record(const Call&, const SampledRow&, int owner, RowMaker, DType) const;
  int local_head(int64_t heads) const;

  Device& device_;
  int first_head_;
};

}  // namespace ringscope
