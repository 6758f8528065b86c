#include "kernels/cpu/tile_unit.h"

#include <algorithm>

namespace pagoda::kernels::cpu {
namespace {

// Calls visit(natural index, index in the order) for each element.
template <class Visit>
void VisitOrder(ElementOrder order, uint32_t lanes, uint32_t elements, const Visit& visit) {
  if (order == ElementOrder::kNatural) {
    for (uint32_t i = 0; i < elements; ++i) visit(i, i);
    return;
  }
  if (order == ElementOrder::kUnpacked) {
    for (uint32_t i = 0; i < elements; ++i) {
      const uint32_t high = i / 4 % 2;
      visit(i, i / 32 * 32 + high * 16 + i % 32 / 8 * 4 + i % 4);
    }
    return;
  }
  const uint32_t pairs_end = elements / (2 * lanes) * (2 * lanes);
  for (uint32_t first = 0; first < pairs_end; first += 2 * lanes) {
    for (uint32_t i = 0; i < lanes; ++i) {
      visit(first + 2 * i, first + i);
      visit(first + 2 * i + 1, first + lanes + i);
    }
  }
  for (uint32_t i = pairs_end; i < elements; ++i) visit(i, i);
}

}  // namespace

void Arrange(ElementOrder order, uint32_t lanes, const float* natural, uint32_t elements,
             float* arranged) {
  VisitOrder(order, lanes, elements,
             [&](uint32_t from, uint32_t to) { arranged[to] = natural[from]; });
}

void Restore(ElementOrder order, uint32_t lanes, const float* arranged, uint32_t elements,
             float* natural) {
  VisitOrder(order, lanes, elements,
             [&](uint32_t to, uint32_t from) { natural[to] = arranged[from]; });
}

size_t TileScratchBytes(const AttentionCall& call) {
  ScratchCutter decode;
  DecodeUnit(call, decode);
  ScratchCutter prefill;
  PrefillUnit(call, prefill);
  return std::max(decode.bytes(), prefill.bytes());
}

void RunTileUnit(const AttentionCall& call, const AttentionUnit& unit, const AttentionUnit& next,
                 bool fetched, absl::Span<std::byte> memory) {
  ScratchCutter scratch(memory);
  if (uint64_t{unit.item->num_queries} * call.group() <= DecodeUnit::kMostRows) {
    DecodeUnit(call, scratch).Run(unit, next, fetched);
  } else {
    PrefillUnit(call, scratch).Run(unit);
  }
}

}  // namespace pagoda::kernels::cpu
