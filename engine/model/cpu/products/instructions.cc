#include "engine/model/cpu/products/instructions.h"

#include <cpuid.h>

#include "engine/model/cpu/products/tiles.h"

namespace pagoda {
namespace {

using kernels::cpu::BestIsa;
using kernels::cpu::Isa;

// CPUID leaf 7 (Intel's manual, volume 2): the bit of a register in this sub-leaf.
bool HasLeaf7(uint32_t sub_leaf, uint32_t which, uint32_t bit) {
  uint32_t registers[4] = {};
  if (__get_cpuid_count(7, sub_leaf, &registers[0], &registers[1], &registers[2], &registers[3]) ==
      0) {
    return false;
  }
  return (registers[which] >> bit & 1) != 0;
}

bool HasAvx512Vnni() { return BestIsa() >= Isa::kAvx512 && HasLeaf7(0, 2, 11); }
bool HasAvxVnni() { return BestIsa() >= Isa::kAvx2 && HasLeaf7(1, 0, 4); }

std::vector<IntegerInstructions> IntegersOf(Isa isa) {
  std::vector<IntegerInstructions> all = {IntegerInstructions::kPortable};
  if (isa >= Isa::kAvx2) all.push_back(IntegerInstructions::kAvx2);
  if (isa >= Isa::kAvx2 && HasAvxVnni()) all.push_back(IntegerInstructions::kAvxVnni);
  if (isa >= Isa::kAvx512 && HasAvx512Vnni()) all.push_back(IntegerInstructions::kAvx512Vnni);
  return all;
}

}  // namespace

bool TilesAreUsable() { return kernels::cpu::BestMatrixUnit() == kernels::cpu::MatrixUnit::kAmx; }

ProductInstructions BestInstructions(Isa isa) {
  const bool tiles = isa == Isa::kAvx512Bf16 && TilesAreUsable();
  return {.isa = isa,
          .integers = IntegersOf(isa).back(),
          .tiles = tiles ? TileInstructions::kAmx : TileInstructions::kNone};
}

std::vector<ProductInstructions> AllInstructions() {
  std::vector<ProductInstructions> all;
  for (const Isa isa : {Isa::kPortable, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16}) {
    if (isa > BestIsa()) continue;
    for (const IntegerInstructions integers : IntegersOf(isa)) {
      all.push_back({.isa = isa, .integers = integers});
    }
    if (BestInstructions(isa).tiles != TileInstructions::kNone) {
      all.push_back(BestInstructions(isa));
    }
  }
  return all;
}

}  // namespace pagoda
