#include "kernels/cpu/tile_unit.h"

#include <algorithm>

namespace pagoda::kernels::cpu {
namespace {

// Where the element i of what is unpacked lies.
uint32_t UnpackedIndex(uint32_t i) { return i / 32 * 32 + i / 4 % 2 * 16 + i % 32 / 8 * 4 + i % 4; }

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
    for (; first < elements; ++first) natural[first] = arranged[UnpackedIndex(first)];
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
