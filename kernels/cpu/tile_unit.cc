#include "kernels/cpu/tile_unit.h"

#include <algorithm>

namespace pagoda::kernels::cpu {
namespace {

// Restores the order of 32 elements, or of the first of them.
void RestoreUnpacked(const float* __restrict arranged, uint32_t elements,
                     float* __restrict natural) {
  constexpr uint32_t kRun = 4;
  for (uint32_t first = 0; first < elements; first += kRun) {
    const uint32_t half = first / kRun % 2 * 16;
    std::copy_n(arranged + half + first / (2 * kRun) * kRun, kRun, natural + first);
  }
}

}  // namespace

void Arrange(ElementOrder order, uint32_t lanes, const float* __restrict natural, uint32_t elements,
             float* __restrict arranged) {
  uint32_t first = 0;
  if (order == ElementOrder::kEvenOdd) {
    for (; first + 2 * lanes <= elements; first += 2 * lanes) {
      for (uint32_t i = 0; i < lanes; ++i) {
        arranged[first + i] = natural[first + 2 * i];
        arranged[first + lanes + i] = natural[first + 2 * i + 1];
      }
    }
  }
  std::copy(natural + first, natural + elements, arranged + first);
}

void Restore(ElementOrder order, uint32_t lanes, const float* __restrict arranged,
             uint32_t elements, float* __restrict natural) {
  uint32_t first = 0;
  if (order == ElementOrder::kUnpacked) {
    for (; first < elements; first += 32) {
      RestoreUnpacked(arranged + first, std::min(32u, elements - first), natural + first);
    }
    return;
  } else if (order == ElementOrder::kEvenOdd) {
    for (; first + 2 * lanes <= elements; first += 2 * lanes) {
      for (uint32_t i = 0; i < lanes; ++i) {
        natural[first + 2 * i] = arranged[first + i];
        natural[first + 2 * i + 1] = arranged[first + lanes + i];
      }
    }
  }
  std::copy(arranged + first, arranged + elements, natural + first);
}

size_t TileScratchBytes(const AttentionCall& call) {
  ScratchCutter decode;
  DecodeUnit(call, decode);
  ScratchCutter prefill;
  PrefillUnit(call, prefill);
  return std::max(decode.bytes(), prefill.bytes());
}

bool RunTileUnit(const AttentionCall& call, const AttentionUnit& unit, const AttentionUnit& next,
                 bool fetched, absl::Span<std::byte> memory) {
  ScratchCutter scratch(memory);
  if (uint64_t{unit.item->num_queries} * call.group() <= DecodeUnit::kMostRows) {
    return DecodeUnit(call, scratch).Run(unit, next, fetched);
  }
  PrefillUnit(call, scratch).Run(unit);
  return false;
}

}  // namespace pagoda::kernels::cpu
