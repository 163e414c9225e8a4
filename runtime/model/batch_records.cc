#include "runtime/model/batch_records.h"

#include "probes/recorder/emit.h"
#include "runtime/kernels/checksum.h"

namespace ringscope {
namespace {

ShardTokens own_shard(const RankContext& ctx, const LayoutTokens& layout) {
  const size_t cp = size_t(ctx.coord.cp);
  return {layout.row[cp], layout.document[cp], layout.sample};
}

std::span<const int32_t> values(const Tensor& tensor) { return {tensor.data<int32_t>(), size_t(tensor.count())}; }

// One run [from, to) of the shard, within one sample.
LabelRunRecord label_run(const ShardTokens& of, std::span<const int32_t> token, std::span<const int32_t> label,
                         size_t from, size_t to) {
  LabelRunRecord run{};
  run.token_start = uint32_t(of.row[from]);
  run.count = uint32_t(to - from);
  run.document = uint32_t(of.document[from]);
  run.first_token = token[from], run.last_token = token[to - 1];
  run.first_label = label[from], run.last_label = label[to - 1];
  for (size_t i = from; i < to; ++i) {
    if (label[i] < 0) continue;
    ++run.counted;
    run.same += label[i] == token[i];
    if (i + 1 == to) continue;
    ++run.pairs;
    run.next += label[i] == token[i + 1];
    run.second += i + 2 < to && label[i] == token[i + 2];
  }
  run.tokens_sum = kernels::checksum(&token[from], (to - from) * sizeof(int32_t));
  run.labels_sum = kernels::checksum(&label[from], (to - from) * sizeof(int32_t));
  return run;
}

}  // namespace

void record_positions(const Where& where, PositionRole role, const ShardTokens& of, std::span<const int32_t> position,
                      float rope_base) {
  const size_t tokens = of.row.size() / of.sample.size();
  const auto part = [&](std::span<const int32_t> all, size_t b) {
    const std::span<const int32_t> sample = all.subspan(b * tokens, tokens);
    return std::vector<int32_t>(sample.begin(), sample.end());
  };
  for (size_t b = 0; b < of.sample.size(); ++b)
    for (const PositionRun& run : position_runs(part(of.row, b), part(position, b), part(of.document, b))) {
      PositionRunRecord record{};
      record.where = where.pack();
      record.token_start = uint32_t(run.row);
      record.count = uint32_t(run.count);
      record.pos_start = uint32_t(run.position);
      record.stride = 1;
      record.role = uint32_t(role);
      record.document = uint32_t(run.document);
      record.sample = uint32_t(of.sample[b]);
      record.rope_base = rope_base;
      emit(RecordKind::kPositionRun, record);
    }
}

void record_labels(const Where& where, LabelRole role, const ShardTokens& of, std::span<const int32_t> token,
                   std::span<const int32_t> label) {
  const size_t tokens = of.row.size() / of.sample.size();
  for (size_t from = 0, to = 0; from < of.row.size(); from = to) {
    const size_t sample = from / tokens;
    for (to = from + 1; to < (sample + 1) * tokens; ++to)
      if (of.row[to] != of.row[to - 1] + 1 || of.document[to] != of.document[from]) break;
    LabelRunRecord record = label_run(of, token, label, from, to);
    record.where = where.pack();
    record.role = uint16_t(role);
    record.sample = uint32_t(of.sample[sample]);
    emit(RecordKind::kLabelRun, record);
  }
}

void record_applied_positions(RankContext& ctx, const ModelBatch& batch, PositionRole role, double rope_base) {
  if (!rs_enabled() || !batch.attention.layout) return;
  Device& device = *ctx.device;
  device.launch(*ctx.compute, "statistics.positions", {batch.position}, {},
                [where = device.where(), layout = batch.attention.layout, position = batch.position, role, rope_base,
                 cp = size_t(ctx.coord.cp)] {
                  record_positions(where, role, {layout->row[cp], layout->document[cp], layout->sample},
                                   values(position), float(rope_base));
                });
}

void record_applied_batch(RankContext& ctx, const ModelBatch& batch) {
  if (!rs_enabled() || !batch.attention.layout) return;
  Device& device = *ctx.device;
  std::vector<Tensor> reads = {batch.input_ids, batch.labels};
  for (const kernels::TokenInfo& shard : batch.attention.shards)
    for (const Tensor& tensor : {shard.row, shard.document}) reads.push_back(tensor);
  device.launch(
      *ctx.compute, "statistics.batch", reads, std::span<const Tensor>(),
      [where = device.where(), layout = batch.attention.layout, reads, own = own_shard(ctx, *batch.attention.layout)] {
        record_labels(where, LabelRole::kApplied, own, values(reads[0]), values(reads[1]));
        // The document is the one that the kernel reads too, so that a run says all that the mask is made of.
        for (size_t cp = 0; cp < layout->row.size(); ++cp)
          record_positions(where, PositionRole::kMask, {layout->row[cp], values(reads[3 + 2 * cp]), layout->sample},
                           values(reads[2 + 2 * cp]), 0);
      });
}

}  // namespace ringscope
