// Which instructions a product uses.
#ifndef PAGODA_ENGINE_MODEL_CPU_PRODUCTS_INSTRUCTIONS_H_
#define PAGODA_ENGINE_MODEL_CPU_PRODUCTS_INSTRUCTIONS_H_

#include <cstdint>
#include <vector>

#include "kernels/execution/isa.h"

namespace pagoda {

enum class IntegerInstructions : uint8_t { kPortable, kAvx2, kAvxVnni, kAvx512Vnni };
enum class TileInstructions : uint8_t { kNone, kAmx };

struct ProductInstructions {
  kernels::cpu::Isa isa = kernels::cpu::Isa::kPortable;
  IntegerInstructions integers = IntegerInstructions::kPortable;
  TileInstructions tiles = TileInstructions::kNone;

  bool bfloat16() const { return isa == kernels::cpu::Isa::kAvx512Bf16; }
};

// The best that this machine has among those of `isa` and below. oneDNN always chooses for itself.
ProductInstructions BestInstructions(kernels::cpu::Isa isa = kernels::cpu::BestIsa());

// Every combination that this machine can run, for tests.
std::vector<ProductInstructions> AllInstructions();

}  // namespace pagoda

#endif  // PAGODA_ENGINE_MODEL_CPU_PRODUCTS_INSTRUCTIONS_H_
