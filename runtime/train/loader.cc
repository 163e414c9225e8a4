#include "runtime/train/loader.h"

#include "probes/recorder/emit.h"
#include "runtime/kernels/kernels.h"
#include "runtime/train/text_data.h"

namespace ringscope {
namespace {

// Up to three rows of the shard that see keys of two shards or more: first, middle, last of them.
std::vector<SampledRow> sampled_rows(const SequenceSplit& split, int cp_rank, const std::vector<Sequence>& sequences) {
  const std::vector<int32_t> rows = split.rows(cp_rank);
  std::vector<SampledRow> found;
  for (size_t b = 0; b < sequences.size() && found.empty(); ++b) {
    const std::vector<int32_t>& document = sequences[b].info.document;
    // first_foreign[row]: does the document up to this row have rows of another shard?
    std::vector<char> mixed(document.size(), 0);
    int first_owner = -1;
    for (size_t row = 0; row < document.size(); ++row) {
      if (row == 0 || document[row] != document[row - 1]) first_owner = split.owner(row);
      else mixed[row] = mixed[row - 1] || split.owner(row) != first_owner;
      if (document[row] < 0) mixed[row] = 0;
    }
    for (size_t i = 0; i < rows.size(); ++i)
      if (mixed[rows[i]]) found.push_back({int32_t(b * rows.size() + i), rows[i], sequences[b].sample});
  }
  if (found.size() <= 3) return found;
  return {found.front(), found[found.size() / 2], found.back()};
}

// A value of a row; what pads a sequence has no entry.
int32_t at(const std::vector<int32_t>& values, int32_t row, int32_t otherwise) {
  return row < int32_t(values.size()) ? values[size_t(row)] : otherwise;
}

// What RoPE and the learned embedding are given; padding gets 0.
int32_t position_of(const Sequence& s, int32_t row) {
  return at(s.info.document, row, -1) < 0 ? 0 : s.info.position[size_t(row)];
}

}  // namespace

int64_t Loader::counted(const std::vector<Sequence>& sequences) const {
  int64_t count = 0;
  for (const Sequence& s : sequences)
    for (int32_t row : split_.rows(ctx_.coord.cp)) count += row < int32_t(s.labels.size()) && s.labels[row] != kNoLabel;
  return count;
}

// One value per local token of CP rank `cp`, of a row in the whole sequence.
template <class ValueOf>
std::vector<int32_t> Loader::column(const char* name, int cp, const std::vector<Sequence>& sequences,
                                    ValueOf value_of) const {
  Upload upload{name, cp, split_.rows(cp)};
  if (ctx_.seam) ctx_.seam->upload(upload, split_);
  std::vector<int32_t> values;
  for (const Sequence& s : sequences)
    for (int32_t row : upload.rows) {
      const int32_t value = value_of(s, row);
      values.push_back(value < 0 ? value : std::max(value + upload.shift, 0));
    }
  return values;
}

std::vector<int32_t> Loader::data_positions(const std::vector<Sequence>& sequences) const {
  std::vector<int32_t> positions;
  for (const Sequence& s : sequences)
    for (int32_t row : split_.rows(ctx_.coord.cp)) positions.push_back(position_of(s, row));
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
  const auto upload_column = [&](const char* name, int cp, auto value_of) {
    return upload(name, column(name, cp, sequences, value_of));
  };
  const auto row_of = [](const Sequence&, int32_t row) { return row; };
  const int own = ctx_.coord.cp;
  out.input_ids =
      upload_column("batch.tokens", own, [](const Sequence& s, int32_t row) { return at(s.tokens, row, kNoToken); });
  out.labels =
      upload_column("batch.labels", own, [](const Sequence& s, int32_t row) { return at(s.labels, row, kNoLabel); });
  out.row = upload_column("batch.row", own, row_of);
  out.sample = upload_column("batch.sample", own, [](const Sequence& s, int32_t) { return s.sample; });
  out.position = upload_column("batch.position", own, position_of);

  for (int cp = 0; cp < split_.cp(); ++cp) {
    kernels::TokenInfo info;
    info.batch = batch;
    info.row = cp == own ? out.row : upload_column("batch.row", cp, row_of);
    info.document = upload_column("batch.document", cp,
                                  [](const Sequence& s, int32_t row) { return at(s.info.document, row, -1); });
    out.attention.shards.push_back(info);
    out.attention.sampled.push_back(rs_enabled() && split_.cp() > 1 ? sampled_rows(split_, cp, sequences)
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

  record(PositionRole::kData, sequences, data_positions(sequences), 0);
  return out;
}

void Loader::record(PositionRole role, const std::vector<Sequence>& sequences, const std::vector<int32_t>& positions,
                    float rope_base) const {
  if (!rs_enabled()) return;
  const std::vector<int32_t> rows = split_.rows(ctx_.coord.cp);
  for (size_t b = 0; b < sequences.size(); ++b) {
    std::vector<int32_t> position(positions.begin() + b * rows.size(), positions.begin() + (b + 1) * rows.size());
    std::vector<int32_t> document;
    for (int32_t row : rows) document.push_back(sequences[b].info.document[row]);
    for (const PositionRun& run : position_runs(rows, position, document)) {
      PositionRunRecord record{};
      record.where = ctx_.device->where().pack();
      record.token_start = uint32_t(run.row);
      record.count = uint32_t(run.count);
      record.pos_start = uint32_t(run.position);
      record.stride = 1;
      record.role = uint32_t(role);
      record.document = uint32_t(run.document);
      record.sample = uint32_t(sequences[b].sample);
      record.rope_base = rope_base;
      emit(RecordKind::kPositionRun, record);
    }
  }
}

bool Loader::record_applied(const ModelBatch& batch, const std::vector<Sequence>& sequences) {
  if (!rs_enabled()) return true;
  const std::vector<double> read = ctx_.device->read_back(*ctx_.compute, batch.position, "positions");
  if (read.empty()) return false;
  const bool rope = ctx_.config->model.arch == Arch::kLlama;
  record(rope ? PositionRole::kRope : PositionRole::kEmbedding, sequences, {read.begin(), read.end()},
         rope ? float(ctx_.config->model.rope_theta) : 0);
  return true;
}

}  // namespace ringscope
