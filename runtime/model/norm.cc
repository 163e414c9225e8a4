#include "runtime/model/norm.h"

#include "runtime/kernels/kernels.h"

namespace ringscope {

Norm::Norm(RankContext& ctx, ParameterStore& store, const std::string& name) : ctx_(ctx), store_(store) {
  const int64_t hidden = ctx.config->model.hidden_size;
  const auto vector = [&](const char* label, const std::string& full_name, Init init) {
    ParameterSpec spec;
    spec.name = label;
    spec.rows = hidden;
    spec.pieces = {{full_name, {hidden}, false, 0, hidden, 0, 0}};
    spec.init = init;
    spec.decay = false;
    spec.replicated = true;
    return store.add(std::move(spec));
  };
  weight_ = vector("norm.weight", name + ".weight", Init::kOne);
  if (ctx.config->model.arch == Arch::kGpt) bias_ = vector("norm.bias", name + ".bias", Init::kZero);
}

Tensor Norm::forward(const Tensor& x, NormSaved& saved) {
  Device& device = *ctx_.device;
  const double eps = ctx_.config->model.norm_epsilon;
  saved.x = x;
  saved.y = ctx_.allocate({x.dim(0), x.dim(1)}, "norm.y");
  saved.rstd = device.allocate(DType::kF64, {x.dim(0)}, MemCategory::kActivation, "norm.rstd");
  if (bias_ >= 0) {
    saved.mean = device.allocate(DType::kF64, {x.dim(0)}, MemCategory::kActivation, "norm.mean");
    kernels::layer_norm(device, *ctx_.compute, x, store_[weight_].value, store_[bias_].value, eps, saved.y, saved.mean,
                        saved.rstd);
  } else {
    kernels::rms_norm(device, *ctx_.compute, x, store_[weight_].value, eps, saved.y, saved.rstd);
  }
  return saved.y;
}

Tensor Norm::backward(const Tensor& dy, const NormSaved& saved) {
  Tensor dx = ctx_.allocate({dy.dim(0), dy.dim(1)}, "norm.dx");
  if (bias_ >= 0)
    kernels::layer_norm_backward(*ctx_.device, *ctx_.compute, dy, saved.x, store_[weight_].value, saved.mean,
                                 saved.rstd, dx, store_[weight_].grad, store_[bias_].grad);
  else
    kernels::rms_norm_backward(*ctx_.device, *ctx_.compute, dy, saved.x, store_[weight_].value, saved.rstd, dx,
                               store_[weight_].grad);
  return dx;
}

}  // namespace ringscope
