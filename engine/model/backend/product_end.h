#ifndef PAGODA_ENGINE_MODEL_BACKEND_PRODUCT_END_H_
#define PAGODA_ENGINE_MODEL_BACKEND_PRODUCT_END_H_

#include <cstdint>

namespace pagoda {

// What becomes of a fused product (Backend::MultiplyFused).
enum class ProductEnd : uint8_t {
  kStore,     // output = product.
  kAdd,       // output += product.
  kGate,      // output = activation(gate) * up: the product's columns are gate, then up.
  kActivate,  // output = activation(product).
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_MODEL_BACKEND_PRODUCT_END_H_
