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

// Further below the maximum that was used, the end of the kernels' exp (exp(-87)) would count beside the part.
constexpr double kDeepestPart = 40;
const double kLeastPart = std::exp(-kDeepestPart);

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

std::vector<AttentionRows::Row> AttentionRows::rows(const Call& call, int shard, int owner, RowMaker maker,
                                                    int64_t heads, DType dtype) const {
  std::vector<Row> rows;
  if (!rs_enabled() || !call.batch.layout) return rows;
  const LayoutTokens& layout = *call.batch.layout;
  const std::vector<int32_t>& document = layout.document[size_t(shard)];
  const size_t tokens = document.size(), half = (tokens + 1) / 2;
  const Where& where = device_.where();
  // A fixed walk through the tokens: every call begins elsewhere, and all ranks of a group alike.
  const size_t from = size_t(where.step + 5 * where.layer + 3 * where.microbatch + 9) * 0x9E37 % 0xFFF1;
  for (const size_t begin : {size_t(0), half}) {
    const size_t count = begin ? tokens - half : half;
    for (size_t n = 0; n < count; ++n) {
      const size_t token = begin + (from + n) % count;
      if (document[token] < 0) continue;
      Row row{int64_t(token), SoftmaxLog::sampled_head(where, heads), {}};
      row.record.where = where.pack();
      row.record.position = uint32_t(layout.row[size_t(shard)][token]);
      row.record.head = uint16_t(first_head_ + row.head);
      row.record.kv_owner = uint16_t(owner);
      row.record.sample = uint32_t(layout.sample[token / (tokens / size_t(layout.batch))]);
      row.record.parts = uint16_t(call.parts);
      row.record.maker = uint8_t(maker);
      row.record.dtype = uint8_t(dtype);
      row.record.method = uint16_t(call.method);
      row.record.block_owner = uint16_t(owner);
      rows.push_back(row);
      break;
    }
  }
  return rows;
}

void AttentionRows::recompute(Stream& stream, const Call& call, const std::vector<Part>& parts) {
  struct Work {
    Part part;
    std::vector<Row> rows;
  };
  std::vector<Work> work;
  std::vector<Tensor> reads;
  for (const Part& part : parts) {
    std::vector<Row> rows =
        this->rows(call, part.shard, part.owner, RowMaker::kRecomputed, part.q.dim(1), part.q.dtype());
    if (rows.empty()) continue;
    for (Row& row : rows) row.record.block_owner = uint16_t(part.sum_of_q ? part.shard : part.owner);
    work.push_back({part, std::move(rows)});
    for (const Tensor& tensor : {part.q, part.kv}) reads.push_back(tensor);
  }
  if (work.empty()) return;
  const auto compute = [work, layout = call.batch.layout, dropout = call.batch.dropout] {
    for (const Work& of : work) {
      const Part& part = of.part;
      const uint64_t checksum = part.sum_of_q ? kernels::checksum(part.q.data<uint8_t>(), size_t(part.q.bytes()))
                                              : block_checksum(part, layout->batch);
      for (const Row& row : of.rows) emit(RecordKind::kAttentionRow, recomputed(row, part, *layout, dropout, checksum));
    }
  };
  device_.launch(stream, "statistics.attention_row", reads, std::span<const Tensor>(), compute);
}

AttentionRowRecord AttentionRows::recomputed(const Row& row, const Part& part, const LayoutTokens& layout,
                                             const kernels::AttentionDropout& dropout, uint64_t checksum) {
  const std::span<const int32_t> rows(layout.row[size_t(part.owner)]), documents(layout.document[size_t(part.owner)]);
  const size_t tokens = rows.size() / size_t(layout.batch), sample = size_t(row.token) / tokens;
  const kernels::RowQuery query{part.q,
                                row.token,
                                row.head,
                                int32_t(row.record.position),
                                layout.document[size_t(part.shard)][size_t(row.token)],
                                int32_t(row.record.sample)};
  const kernels::RowKeys keys{part.kv, (int64_t(sample) * part.blocks + part.at) * int64_t(tokens),
                              rows.subspan(sample * tokens, tokens), documents.subspan(sample * tokens, tokens)};
  const kernels::RowValues values = kernels::attention_row(query, keys, dropout);
  AttentionRowRecord record = row.record;
  record.m = values.m;
  record.lse = values.lse;
  record.out = values.out;
  record.out_size = values.out_size;
  record.score_noise = values.score_noise;
  record.keys = values.visible;
  record.checksum = checksum;
  return record;
}

void AttentionRows::put_out(Stream& stream, const Call& call, int shard, int owner, const Tensor& m, const Tensor& lse,
                            const Tensor& o) {
  const int64_t heads = o.dim(1);
  const std::vector<Row> rows = this->rows(call, shard, owner, RowMaker::kKernel, heads, o.dtype());
  if (rows.empty()) return;
  std::vector<Tensor> reads;
  for (const Row& row : rows)
    for (const Tensor& tensor : {m, lse, o})
      if (tensor.defined()) reads.push_back(tensor.rows(row.token, row.token + 1));
  device_.launch(stream, "statistics.attention_row", reads, std::span<const Tensor>(), [rows, m, lse, o, heads] {
    for (const Row& row : rows) {
      const int64_t at = row.token * heads + row.head;
      AttentionRowRecord record = row.record;
      record.m = m.defined() ? m.data<double>()[at] : kUnknown;
      record.lse = lse.data<double>()[at];
      record.out = kernels::row_product(o, at * o.dim(2));
      emit(RecordKind::kAttentionRow, record);
    }
  });
}

AttentionRows::Maxima AttentionRows::take_maxima(Stream& stream, const Call& call, const Tensor& m) {
  struct Place {
    int64_t at, to;
  };
  std::vector<Place> places;
  std::vector<Tensor> reads;
  const int64_t tokens = m.dim(1), heads = m.dim(2);
  for (int64_t shard = 0; shard < m.dim(0); ++shard)
    for (const Row& row : rows(call, int(shard), 0, RowMaker::kKernel, heads, m.dtype())) {
      places.push_back({(shard * tokens + row.token) * heads + row.head, int64_t(places.size())});
      reads.push_back(m[shard].rows(row.token, row.token + 1));
    }
  if (places.empty()) return nullptr;
  auto maxima = std::make_shared<std::vector<double>>(places.size(), kUnknown);
  device_.launch(stream, "statistics.attention_row", reads, std::span<const Tensor>(), [places, m, maxima] {
    for (const Place& place : places) (*maxima)[size_t(place.to)] = m.data<double>()[place.at];
  });
  return maxima;
}

void AttentionRows::put_out_pieces(Stream& stream, const Call& call, int owner, const Maxima& maxima,
                                   const Tensor& m_used, const Tensor& z, const Tensor& u) {
  struct Work {
    AttentionRowRecord record;
    int64_t at;  // of the row in m_used and z
  };
  std::vector<Work> work;
  std::vector<Tensor> reads;
  const int64_t tokens = z.dim(1), heads = z.dim(2);
  for (int64_t shard = 0; shard < z.dim(0); ++shard)
    for (const Row& row : rows(call, int(shard), owner, RowMaker::kKernel, heads, u.dtype())) {
      work.push_back({row.record, (shard * tokens + row.token) * heads + row.head});
      for (const Tensor& tensor : {m_used, z, u}) reads.push_back(tensor[shard].rows(row.token, row.token + 1));
    }
  if (work.empty()) return;
  device_.launch(stream, "statistics.attention_row", reads, std::span<const Tensor>(), [work, maxima, m_used, z, u] {
    for (size_t i = 0; i < work.size(); ++i) {
      const int64_t at = work[i].at;
      const double used = m_used.data<double>()[at], sum = z.data<double>()[at];
      AttentionRowRecord record = work[i].record;
      record.m = maxima ? (*maxima)[i] : kUnknown;
      // Far below the maximum that was used nothing is left to read: that is not to see no key.
      const bool saw_none = record.m == -INFINITY || used - record.m <= kDeepestPart;
      const bool none = used == -INFINITY || (sum == 0 && saw_none);
      const bool known = none || (sum >= kLeastPart && std::isfinite(used));
      record.lse = none ? -INFINITY : known ? used + std::log(sum) : kUnknown;
      record.out = none ? 0 : known ? kernels::row_product(u, at * u.dim(3)) / sum : kUnknown;
      emit(RecordKind::kAttentionRow, record);
    }
  });
}

}  // namespace ringscope
