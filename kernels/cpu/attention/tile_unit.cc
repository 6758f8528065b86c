#include "kernels/cpu/attention/tile_unit.h"

#include <algorithm>
#include <array>

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

constexpr uint32_t kBytes = 64;

// The element at a position of 64 in an order of bytes.
constexpr uint8_t ElementAt(ElementOrder order, uint32_t position) {
  const uint32_t p = position;
  const uint32_t element =
      order == ElementOrder::kBytePairs    ? p % 16 / 4 * 16 + p % 4 * 2 + p / 16 % 2 + p / 32 * 8
      : order == ElementOrder::kByteHalves ? p % 32 / 8 * 16 + p / 32 * 8 + p % 8
                                           : p % 16 / 4 * 16 + p / 16 * 4 + p % 4;
  return static_cast<uint8_t>(element);
}

using Positions = std::array<uint8_t, kBytes>;

template <ElementOrder kOrder>
constexpr Positions MakePositions() {
  Positions elements = {};
  for (uint32_t p = 0; p < kBytes; ++p) elements[p] = ElementAt(kOrder, p);
  return elements;
}

const Positions& PositionsOf(ElementOrder order) {
  static constexpr Positions kPairs = MakePositions<ElementOrder::kBytePairs>();
  static constexpr Positions kHalves = MakePositions<ElementOrder::kByteHalves>();
  static constexpr Positions kQuarters = MakePositions<ElementOrder::kByteQuarters>();
  return order == ElementOrder::kBytePairs    ? kPairs
         : order == ElementOrder::kByteHalves ? kHalves
                                              : kQuarters;
}

}  // namespace

template <class T>
void Arrange(ElementOrder order, uint32_t lanes, const T* __restrict natural, uint32_t elements,
             T* __restrict arranged) {
  uint32_t first = 0;
  if (IsOfBytes(order)) {
    const Positions& elements_at = PositionsOf(order);
    for (; first + kBytes <= elements; first += kBytes) {
      for (uint32_t p = 0; p < kBytes; ++p) arranged[first + p] = natural[first + elements_at[p]];
    }
    for (uint32_t p = 0; p < kBytes && first < elements; ++p) {
      const uint32_t element = first + elements_at[p];
      arranged[first + p] = element < elements ? natural[element] : T{};
    }
    return;
  }
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
template void Arrange(ElementOrder, uint32_t, const float* __restrict, uint32_t, float* __restrict);
template void Arrange(ElementOrder, uint32_t, const BFloat16* __restrict, uint32_t,
                      BFloat16* __restrict);

void Restore(ElementOrder order, uint32_t lanes, const float* __restrict arranged,
             uint32_t elements, float* __restrict natural) {
  uint32_t first = 0;
  if (IsOfBytes(order)) {
    const Positions& elements_at = PositionsOf(order);
    for (; first + kBytes <= elements; first += kBytes) {
      for (uint32_t p = 0; p < kBytes; ++p) natural[first + elements_at[p]] = arranged[first + p];
    }
    for (uint32_t p = 0; p < kBytes && first < elements; ++p) {
      const uint32_t element = first + elements_at[p];
      if (element < elements) natural[element] = arranged[first + p];
    }
    return;
  }
  if (order == ElementOrder::kUnpacked) {
    for (; first < elements; first += 32) {
      RestoreUnpacked(arranged + first, std::min(32u, elements - first), natural + first);
    }
    return;
  }
  if (order == ElementOrder::kEvenOdd) {
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
