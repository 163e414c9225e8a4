#include "runtime/train/loader.h"

#include <algorithm>

#include "probes/recorder/emit.h"
#include "runtime/kernels/kernels.h"
#include "runtime/model/batch_records.h"
#include "runtime/train/text_data.h"

namespace ringscope {
namespace {

// Up to three rows of the shard that see keys of two shards or more, of one rank any that see keys: first, middle, last
// of them. From one sequence, in every step another.
std::vector<SampledRow> sampled_rows(const SequenceSplit& split, int cp_rank, const std::vector<Sequence>& sequences,
                                     int step) {
  const std::vector<int32_t> rows = split.rows(cp_rank);
  std::vector<SampledRow> found;
  for (size_t n = 0; n < sequences.size() && found.empty(); ++n) {
    const size_t b = (n + size_t(std::max(step, 0))) % sequences.size();
    const std::vector<int32_t>& document = sequences[b].info.document;
    // first_foreign[row]: does the document up to this row have rows of another shard?
    std::vector<char> mixed(document.size(), 0);
    int first_owner = -1;
    for (size_t row = 0; row < document.size(); ++row) {
      if (row == 0 || document[row] != document[row - 1]) first_owner = split.owner(row), mixed[row] = split.cp() == 1;
      else mixed[row] = mixed[row - 1] || split.owner(row) != first_owner;
      if (document[row] < 0) mixed[row] = 0;
    }
    for (size_t i = 0; i < rows.size(); ++i)
      if (mixed[rows[i]]) found.push_back({int32_t(b * rows.size() + i), rows[i], sequences[b].sample});
  }
  if (found.size() <= 3) return found;
  return {found.front(), found[found.size() / 2], found.back()};
}

}  // namespace

int64_t Loader::counted(const std::vector<Sequence>& sequences) const {
  int64_t count = 0;
  for (const Sequence& s : sequences)
    for (int32_t row : split_.rows(ctx_.coord.cp)) count += row < int32_t(s.labels.size()) && s.labels[row] != kNoLabel;
  return count;
}

// What RoPE and the learned embedding are given. The two position faults are planted here, where real teams
// computed positions from the shard instead of taking them from the loader.
std::vector<int32_t> Loader::applied_positions(const std::vector<Sequence>& sequences) const {
  const std::vector<int32_t> rows = split_.rows(ctx_.coord.cp);
  const bool restart = ctx_.fault(FaultId::kPositionRestart);
  const bool zigzag = ctx_.fault(FaultId::kZigzagOnContiguous);
  std::vector<int32_t> other;
  if (zigzag) other = SequenceSplit::make(split_.padded(), split_.cp(), CpLayout::kZigzag)->rows(ctx_.coord.cp);
  std::vector<int32_t> positions;
  for (const Sequence& s : sequences)
    for (size_t i = 0; i < rows.size(); ++i) {
      int32_t position = s.info.document[rows[i]] < 0 ? 0 : s.info.position[rows[i]];
      if (restart) position = int32_t(i);
      if (zigzag) position = other[i] < split_.length() ? s.info.position[other[i]] : 0;  // padded further
      positions.push_back(position);
    }
  return positions;
}

ModelBatch Loader::load(const std::vector<Sequence>& sequences) {
  Device& device = *ctx_.device;
  Stream& compute = *ctx_.compute;
  const int64_t batch = int64_t(sequences.size());
  ModelBatch out;
  out.batch = batch;
  out.tokens = batch * split_.shard();

  const auto upload = [&](const char* name, std::vector<int32_t> values) {
    Tensor t = device.allocate(DType::kI32, {int64_t(values.size())}, MemCategory::kInput, name);
    kernels::upload_i32(device, compute, name, t, std::move(values));
    return t;
  };
  // One value per local token of CP rank `cp`.
  const auto column = [&](int cp, auto value) {
    std::vector<int32_t> values;
    for (const Sequence& s : sequences)
      for (int32_t row : split_.rows(cp)) values.push_back(value(s, row));
    return values;
  };
  const auto at = [](const std::vector<int32_t>& v, int32_t row, int32_t otherwise) {
    return row < int32_t(v.size()) ? v[row] : otherwise;
  };
  const int own = ctx_.coord.cp;
  out.input_ids =
      upload("batch.tokens", column(own, [&](const Sequence& s, int32_t row) { return at(s.tokens, row, kNoToken); }));
  out.labels =
      upload("batch.labels", column(own, [&](const Sequence& s, int32_t row) { return at(s.labels, row, kNoLabel); }));
  out.row = upload("batch.row", column(own, [](const Sequence&, int32_t row) { return row; }));
  out.sample = upload("batch.sample", column(own, [](const Sequence& s, int32_t) { return s.sample; }));
  out.position = upload("batch.position", applied_positions(sequences));

  for (int cp = 0; cp < split_.cp(); ++cp) {
    kernels::TokenInfo info;
    info.batch = batch;
    info.row = cp == own ? out.row : upload("batch.row", column(cp, [](const Sequence&, int32_t row) { return row; }));
    info.document =
        upload("batch.document", column(cp, [](const Sequence& s, int32_t row) { return s.info.document[row]; }));
    out.attention.shards.push_back(info);
    out.attention.sampled.push_back(rs_enabled() ? sampled_rows(split_, cp, sequences, device.where().step)
                                                 : std::vector<SampledRow>());
  }
  kernels::AttentionDropout& dropout = out.attention.dropout;
  dropout.p = ctx_.config->model.attention_dropout;
  dropout.seed = ctx_.config->seed;
  dropout.step = device.where().step;
  dropout.first_head = ctx_.coord.tp * (ctx_.config->model.num_attention_heads / ctx_.mesh.size(Axis::kTp));
  std::vector<int32_t> samples;
  for (const Sequence& s : sequences) samples.push_back(s.sample);
  dropout.sample = upload("batch.sample_ids", std::move(samples));

  record_batch(out, sequences);
  return out;
}

void Loader::record_batch(ModelBatch& batch, const std::vector<Sequence>& sequences) const {
  if (!rs_enabled()) return;
  auto layout = std::make_shared<LayoutTokens>();
  layout->batch = batch.batch;
  for (const Sequence& s : sequences) layout->sample.push_back(s.sample);
  for (int cp = 0; cp < split_.cp(); ++cp) {
    std::vector<int32_t> rows, documents;
    for (const Sequence& s : sequences)
      for (int32_t row : split_.rows(cp)) {
        rows.push_back(row);
        documents.push_back(s.info.document[row]);
      }
    layout->row.push_back(std::move(rows));
    layout->document.push_back(std::move(documents));
  }
  batch.attention.layout = layout;

  std::vector<int32_t> positions, tokens, labels;
  for (const Sequence& s : sequences)
    for (int32_t row : split_.rows(ctx_.coord.cp)) {
      positions.push_back(s.info.document[row] < 0 ? 0 : s.info.position[row]);
      tokens.push_back(row < int32_t(s.tokens.size()) ? s.tokens[row] : kNoToken);
      labels.push_back(row < int32_t(s.labels.size()) ? s.labels[row] : kNoLabel);
    }
  const size_t own = size_t(ctx_.coord.cp);
  const ShardTokens shard{layout->row[own], layout->document[own], layout->sample};
  record_positions(ctx_.device->where(), PositionRole::kData, shard, positions, 0);
  record_labels(ctx_.device->where(), LabelRole::kData, shard, tokens, labels);
  record_applied_batch(ctx_, batch);
}

}  // namespace ringscope
