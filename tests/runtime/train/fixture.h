// The torch_models fixtures: small models with every number known, computed by PyTorch. The part that the suite
// always needs lies in tests/data/torch_models; where the full set exists beside the checkout it is used too.
#pragma once

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "runtime/train/train.h"
#include "tracedb/tensorfile/safetensors.h"

namespace ringscope::testing {

inline std::string models_dir() {
  const std::string local = std::string(RINGSCOPE_SOURCE_DIR) + "/tests/data/torch_models";
  return local;
}

inline nlohmann::json read_json(const std::string& path) {
  std::ifstream file(path);
  return nlohmann::json::parse(file);
}

// Relative Frobenius distance of two tensors.
inline double distance(const std::vector<double>& got, const std::vector<double>& want) {
  if (got.size() != want.size()) return INFINITY;
  double difference = 0, norm = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    difference += (got[i] - want[i]) * (got[i] - want[i]);
    norm += want[i] * want[i];
  }
  return norm > 0 ? std::sqrt(difference / norm) : std::sqrt(difference);
}

inline EvalInput read_input(const std::string& model, const std::string& which) {
  const FileTensors file = *read_safetensors(models_dir() + "/" + model + "/inputs.safetensors");
  EvalInput in;
  const FileTensor& ids = file.at(which + ".input_ids");
  in.batch = ids.shape[0];
  in.length = ids.shape[1];
  in.input_ids = ids.integer;
  in.labels = file.at(which + ".labels").integer;
  in.position_ids = file.at(which + ".position_ids").integer;
  if (file.contains(which + ".document_ids")) in.document_ids = file.at(which + ".document_ids").integer;
  in.gradients = true;
  return in;
}

// One layout of the equivalence table.
struct Layout {
  const char* name;
  int tp = 1, cp = 1, dp = 1;
  bool sp = false;
  CpComm comm = CpComm::kP2p;
  CpLayout layout = CpLayout::kZigzag;
};

inline JobConfig job(const Layout& l, const std::string& model, DType dtype) {
  JobConfig config;
  config.tp = l.tp, config.cp = l.cp, config.dp = l.dp;
  config.sequence_parallel = l.sp;
  config.cp_comm = l.comm;
  config.cp_layout = l.layout;
  config.dtype = dtype;
  config.checkpoint = models_dir() + "/" + model;
  return config;
}

inline const std::vector<Layout>& layouts() {
  static const std::vector<Layout> all = {
      {"1"},
      {"TP2", 2},
      {"TP2+SP", 2, 1, 1, true},
      {"CP2 ring", 1, 2},
      {"CP4 ring zigzag", 1, 4},
      {"CP3 contiguous", 1, 3, 1, false, CpComm::kP2p, CpLayout::kContiguous},
      {"CP2 all-gather", 1, 2, 1, false, CpComm::kAllGather},
      {"CP2 three-step", 1, 2, 1, false, CpComm::kGlobalSoftmax},
      {"DP2", 1, 1, 2},
      {"TP2xCP2xDP2", 2, 2, 2, true},
  };
  return all;
}

}  // namespace ringscope::testing
