// Vocabulary-parallel token embedding (and GPT-2's learned positions), and the vocabulary-parallel head with its
// cross entropy. The vocabulary is padded to a multiple of TP; padding rows have no piece in the checkpoint.
#pragma once

#include "runtime/model/batch.h"
#include "runtime/model/parameters.h"

namespace ringscope {

// A [vocab/TP, H] table: this rank's rows of a checkpoint tensor.
class VocabularyTable {
 public:
  VocabularyTable(RankContext&, ParameterStore&, const char* label, const std::string& checkpoint_name);
  int64_t first_row() const { return first_; }
  int64_t rows() const { return rows_; }
  int64_t valid_rows() const;  // rows that are not padding
  int handle() const { return handle_; }

 private:
  int64_t vocab_, rows_, first_;
  int handle_;
};

class Embedding {
 public:
  Embedding(RankContext&, ParameterStore&, const VocabularyTable&);
  Tensor forward(const ModelBatch&);  // -> [Ts,H]
  void backward(const Tensor& dx, const ModelBatch&);

 private:
  RankContext& ctx_;
  ParameterStore& store_;
  const VocabularyTable& table_;
  int position_ = -1;
};

struct HeadSaved {
  Tensor hidden, logits, m, sum_exp;
};

class Head {
 public:
  Head(RankContext&, ParameterStore&, const VocabularyTable&);
  // hidden [Ts,H]; adds {loss sum, counted tokens} into totals (fp64 [2]) and keeps the logits [T, vocab/TP].
  void forward(const Tensor& hidden, const ModelBatch&, const Tensor& totals, HeadSaved&);
  Tensor backward(const ModelBatch&, const HeadSaved&);  // -> d hidden [Ts,H]

 private:
  RankContext& ctx_;
  ParameterStore& store_;
  const VocabularyTable& table_;
};

}  // namespace ringscope
