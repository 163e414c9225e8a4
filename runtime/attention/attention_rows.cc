#include "runtime/attention/attention_rows.h"

#include <cmath>
#include <limits>

#include "probes/recorder/emit.h"
#include "runtime/attention/attention.h"
#include "runtime/kernels/attention_row.h"
#include "runtime/kernels/checksum.h"

namespace ringscope {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

// Further down the end of the kernels' exp (exp(-87)) would count beside the part.
const double kLeastPart = std::exp(-40.0);

// Of one block of K and V, in the order of its owner's tensor whatever lies between.
uint64_t block_checksum(const AttentionRows::Part& part, int64_t batch) {
  const int64_t row_bytes = part.kv.dim(2) * part.kv.dim(3) * size_of(part.kv.dtype());
  const int64_t bytes = part.kv.dim(1) / (batch * part.blocks) * row_bytes;
  const auto* memory = static_cast<const char*>(static_cast<const void*>(part.kv.data<uint8_t>()));
  uint64_t sum = 0;
  for (int64_t piece = 0; piece < 2 * batch; ++piece)  // K of every sample, then V
    sum = kernels::checksum(memory + (piece * part.blocks + part.at) * bytes, size_t(bytes), sum);
  return sum;
}

}  // namespace

int AttentionRows::local_head(int64_t heads) const { return SoftmaxLog::sampled_head(device_.where(), heads); }

const SampledRow* AttentionRows::row(const Call& call, int shard) const {
  if (!rs_enabled() || !call.batch.layout || call.batch.sampled[size_t(shard)].empty()) return nullptr;
  const std::vector<SampledRow>& rows = call.batch.sampled[size_t(shard)];
  const Where& where = device_.where();
  return &rows[size_t(where.step + 2 * where.layer + where.microbatch + 4) % rows.size()];  // -1 = unknown
}

AttentionRowRecord AttentionRows::record(const Call& call, const SampledRow& row, int owner, RowMaker maker,
                                         DType dtype) const {
  AttentionRowRecord record{};
  record.where = device_.where().pack();
  record.position = uint32_t(row.row);
  record.kv_owner = uint16_t(owner);
  record.sample = uint32_t(row.sample);
  record.parts = uint16_t(call.parts);
  record.maker = uint8_t(maker);
  record.dtype = uint8_t(dtype);
  record.method = uint16_t(call.method);
  record.block_owner = uint16_t(owner);
  return record;
}

void AttentionRows::recompute(Stream& stream, const Call& call, const std::vector<Part>& parts) {
  struct Work {
    Part part;
    SampledRow row;
    AttentionRowRecord record;
    int64_t head;
  };
  std::vector<Work> work;
  std::vector<Tensor> reads;
  for (const Part& part : parts) {
    const SampledRow* row = this->row(call, part.shard);
    if (!row) continue;
    const int head = local_head(part.q.dim(1));
    work.push_back({part, *row, record(call, *row, part.owner, RowMaker::kRecomputed, part.q.dtype()), head});
    work.back().record.head = uint16_t(first_head_ + head);
    work.back().record.block_owner = uint16_t(part.sum_of_q ? part.shard : part.owner);
    for (const Tensor& tensor : {part.q, part.kv}) reads.push_back(tensor);
  }
  if (work.empty()) return;
  const auto compute = [work, layout = call.batch.layout, dropout = call.batch.dropout] {
    for (const Work& of : work) {
      const Part& part = of.part;
      const std::vector<int32_t>&rows = layout->row[size_t(part.owner)],
            &documents = layout->document[size_t(part.owner)];
      const size_t tokens = rows.size() / size_t(layout->batch), sample = size_t(of.row.local) / tokens;
      const kernels::RowQuery query{
          part.q,       of.row.local, of.head, of.row.row, layout->document[size_t(part.shard)][size_t(of.row.local)],
          of.row.sample};
      const kernels::RowKeys keys{part.kv, (int64_t(sample) * part.blocks + part.at) * int64_t(tokens),
                                  std::span(rows).subspan(sample * tokens, tokens),
                                  std::span(documents).subspan(sample * tokens, tokens)};
      const kernels::RowValues values = kernels::attention_row(query, keys, dropout);
      AttentionRowRecord record = of.record;
      record.m = values.m;
      record.lse = values.lse;
      record.out = values.out;
      record.out_size = values.out_size;
      record.score_noise = values.score_noise;
      record.keys = values.visible;
      record.checksum = part.sum_of_q ? kernels::checksum(part.q.data<uint8_t>(), size_t(part.q.bytes()))
                                      : block_checksum(part, layout->batch);
      emit(RecordKind::kAttentionRow, record);
    }
  };
  device_.launch(stream, "statistics.attention_row", reads, std::span<const Tensor>(), compute);
}

void AttentionRows::put_out(Stream& stream, const Call& call, int shard, int owner, const Tensor& m, const Tensor& lse,
                            const Tensor& o) {
  const SampledRow* row = this->row(call, shard);
  if (!row) return;
  const int64_t heads = o.dim(1), head = local_head(heads), at = row->local * heads + head;
  AttentionRowRecord record = this->record(call, *row, owner, RowMaker::kKernel, o.dtype());
  record.head = uint16_t(first_head_ + head);
  std::vector<Tensor> reads;
  for (const Tensor& tensor : {m, lse, o})
    if (tensor.defined()) reads.push_back(tensor.rows(row->local, row->local + 1));
  device_.launch(stream, "statistics.attention_row", reads, std::span<const Tensor>(), [m, lse, o, at, record] {
    AttentionRowRecord full = record;
    full.m = m.defined() ? m.data<double>()[at] : kUnknown;
    full.lse = lse.data<double>()[at];
    full.out = kernels::row_product(o, at * o.dim(2));
    emit(RecordKind::kAttentionRow, full);
  });
}

void AttentionRows::put_out_pieces(Stream& stream, const Call& call, int owner, const std::vector<Piece>& pieces) {
  struct Work {
    Piece piece;
    AttentionRowRecord record;
    int64_t at;  // of the row in m_used and z
  };
  std::vector<Work> work;
  std::vector<Tensor> reads;
  for (const Piece& piece : pieces) {
    const SampledRow* row = this->row(call, piece.shard);
    if (!row) continue;
    const int64_t heads = piece.u.dim(1), head = local_head(heads);
    work.push_back({piece, record(call, *row, owner, RowMaker::kKernel, piece.u.dtype()), row->local * heads + head});
    work.back().record.head = uint16_t(first_head_ + head);
    for (const Tensor& tensor : {piece.m_used, piece.z, piece.u})
      reads.push_back(tensor.rows(row->local, row->local + 1));
  }
  if (work.empty()) return;
  device_.launch(stream, "statistics.attention_row", reads, std::span<const Tensor>(), [work] {
    for (const Work& of : work) {
      const double used = of.piece.m_used.data<double>()[of.at], sum = of.piece.z.data<double>()[of.at];
      AttentionRowRecord full = of.record;
      full.m = kUnknown;
      const bool none = sum == 0 || used == -INFINITY, known = none || (sum >= kLeastPart && std::isfinite(used));
      full.lse = none ? -INFINITY : known ? used + std::log(sum) : kUnknown;
      full.out = none ? 0 : known ? kernels::row_product(of.piece.u, of.at * of.piece.u.dim(2)) / sum : kUnknown;
      emit(RecordKind::kAttentionRow, full);
    }
  });
}

}  // namespace ringscope
