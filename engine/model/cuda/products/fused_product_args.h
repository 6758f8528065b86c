#ifndef PAGODA_ENGINE_MODEL_CUDA_PRODUCTS_FUSED_PRODUCT_ARGS_H_
#define PAGODA_ENGINE_MODEL_CUDA_PRODUCTS_FUSED_PRODUCT_ARGS_H_

#include "base/check.h"
#include "engine/model/backend/backend.h"
#include "engine/model/cuda/device/device_weights.h"
#include "engine/model/cuda/kernels/fused_products.h"
#include "engine/model/cuda/kernels/row_kernels.h"

namespace pagoda::cuda {

inline GateArgs GateArgsOf(const GateShape& shape) {
  const GateKind kind = shape.activation == Activation::kSilu       ? GateKind::kSilu
                        : shape.activation == Activation::kGeluTanh ? GateKind::kGeluTanh
                                                                    : GateKind::kClampedSilu;
  return {.kind = kind, .alpha = shape.alpha, .limit = shape.limit};
}

// REQUIRES: the weights are this backend's.
inline FusedProductArgs FusedProductArgsOf(const FusedProduct& product) {
  const auto& linear = static_cast<const DeviceLinear&>(*product.weights);
  const NormShape& norm = product.norm;
  PAGODA_CHECK(
      product.end != ProductEnd::kActivate || product.gate.activation == Activation::kGeluTanh,
      "a plain MLP has gelu");
  return {.type = linear.type,
          .weights = linear.matrix->data(),
          .bias = linear.bias == nullptr ? nullptr : linear.bias->as<float>(),
          .inputs = linear.inputs(),
          .outputs = linear.outputs(),
          .input = product.input,
          .norm = norm.weights == nullptr ? nullptr : ValuesOf(*norm.weights),
          .norm_bias = norm.bias == nullptr ? nullptr : ValuesOf(*norm.bias),
          .eps = norm.eps,
          .end = product.end,
          .gate = GateArgsOf(product.gate),
          .output = product.output};
}

}  // namespace pagoda::cuda

#endif  // PAGODA_ENGINE_MODEL_CUDA_PRODUCTS_FUSED_PRODUCT_ARGS_H_
