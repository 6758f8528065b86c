// How the parts of a layer join the residual stream: what they read of it, and what they add to it.
#ifndef PAGODA_ENGINE_MODEL_LAYERS_LAYER_INPUT_H_
#define PAGODA_ENGINE_MODEL_LAYERS_LAYER_INPUT_H_

#include <cstdint>

#include "engine/model/backend/backend.h"
#include "engine/model/backend/rows_view.h"

namespace pagoda {

// The input of the first products of a layer's part.
struct LayerInput {
  RowsView rows;
  NormShape norm;  // The norm that the rows still need; without weights they are normed.

  bool needs_norm() const { return norm.weights != nullptr; }
};

// Where the result of a layer's part goes.
struct Residual {
  RowsView addition;
  const RowsView* sum = nullptr;  // The residual stream; null if the addition is changed before.
};

// What a layer's part has left behind.
enum class Addition : uint8_t {
  kPending,  // Its result is in Residual::addition.
  kAdded,    // Its result is in the residual stream.
};

// Adds the product to the residual stream if the backend does both at once. Otherwise leaves it in
// `addition`.
inline Addition MultiplyInto(Backend& backend, const LinearWeights& weights, const RowsView& input,
                             const Residual& residual) {
  if (residual.sum != nullptr) {
    const FusedProduct product = {
        .weights = &weights, .input = input, .end = ProductEnd::kAdd, .output = *residual.sum};
    if (backend.CanFuse(product)) {
      backend.MultiplyFused(product);
      return Addition::kAdded;
    }
  }
  backend.Multiply(weights, input, residual.addition);
  return Addition::kPending;
}

}  // namespace pagoda

#endif  // PAGODA_ENGINE_MODEL_LAYERS_LAYER_INPUT_H_
