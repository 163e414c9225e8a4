// One attention call of a training, as tensors: what --dump-attention L,S keeps and writes. The files are in the
// format that numeric checks of any framework's attention read: a folder for every CP group, in it layout.json and
// one rank_NNN.safetensors for each CP rank with q, k, v, out, lse, dout, dq, dk, dv and positions.
//
// Shapes in the files: [batch, rows, heads, dim] in the job's dtype; lse [batch, heads, rows] fp64, natural, -inf for a
// row that sees nothing; positions int64 [rows], the global row of each local one, -1 = padding. Heads are the TP
// rank's own.
#pragma once

#include <string>
#include <vector>

#include "runtime/config/job_config.h"
#include "runtime/layout/layout.h"
#include "runtime/model/context.h"

namespace ringscope {

struct AttentionPick {
  int layer = 0, step = 0;  // microbatch 0
};

// One rank's part, on the host. Empty q: not taken.
struct AttentionCall {
  Coord coord;
  int64_t batch = 0, rows = 0, heads_q = 0, heads_kv = 0, dim = 0;
  std::vector<double> q, k, v, out, lse, dout, dq, dk, dv;
};

// Keeps the tensors of the picked call while the step runs. Thread rule: the rank's host task.
class AttentionCapture : public AttentionWatch {
 public:
  AttentionCapture(RankContext& context, AttentionPick pick) : context_(context), pick_(pick) {}

  void forward(const AttentionSaved& saved) override;
  void backward(const Tensor& d_o, const AttentionGrad& grad) override;
  // At the end of a step: reads the kept tensors back into `call`. False = stopped.
  [[nodiscard]] bool read_back(int64_t batch, AttentionCall& call);

 private:
  bool picked() const;
  RankContext& context_;
  AttentionPick pick_;
  AttentionSaved saved_;
  Tensor d_o_;
  AttentionGrad grad_;
};

// kUsage: no such layer or step; attention dropout (nobody could recompute the call).
Status check(const AttentionPick& pick, const JobConfig& config);

// Writes `calls` (one a rank) under `dir`: one folder, or tpT_dpD folders where there are several CP groups. Every
// file is complete or not there; layout.json comes last. kData: cannot be written.
Status write_attention_dump(const std::string& dir, const JobConfig& config, const std::vector<AttentionCall>& calls);

}  // namespace ringscope
