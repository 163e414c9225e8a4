// AttentionRows: of every attention call two query rows of one head, as the kernels put them out, and computed again in
// fp64 from the very q, K and V that they were given and from the mask of the layout: the trace's attention_row table.
// What the kernels do wrong and what a merge or a reduction makes wrong of right parts differ from it. Rows of what came
// from another rank carry a checksum of its bytes, so that a block that is not its owner's shows.
//
// Rows and head change from layer to layer, microbatch to microbatch and step to step; one row lies in the first half of
// the tokens and one in the second. With the recorder off every call returns at once. Thread rule: the rank's host task;
// the arithmetic and the record are a launch's, on its stream.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/device/device.h"
#include "runtime/kernels/kernels.h"
#include "tracedb/model/record.h"

namespace ringscope {

struct AttentionBatch;

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

  // As pieces of three steps, shard by shard: maxima before their reduction, then u = sum exp(s - m_used) v and
  // z = sum exp(s - m_used), both of the own keys. All [P, T, HQ (, D)].
  using Maxima = std::shared_ptr<std::vector<double>>;  // filled on the stream
  Maxima take_maxima(Stream&, const Call&, const Tensor& m);
  void put_out_pieces(Stream&, const Call&, int owner, const Maxima&, const Tensor& m_used, const Tensor& z,
                      const Tensor& u);

 private:
  struct Row {
    int64_t token = 0;  // of the shard's tensors
    int64_t head = 0;   // local
    AttentionRowRecord record;
  };
  // The rows of a shard that this call looks at: none when nothing is recorded, or where all is padding.
  std::vector<Row> rows(const Call&, int shard, int owner, RowMaker, int64_t heads, DType) const;

  static AttentionRowRecord recomputed(const Row&, const Part&, const LayoutTokens&, const kernels::AttentionDropout&,
                                       uint64_t checksum);

  Device& device_;
  int first_head_;
};

}  // namespace ringscope
