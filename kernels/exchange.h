// K and V in forms of other systems that no strides can express, for the exchange of blocks with
// them.
#ifndef PAGODA_KERNELS_EXCHANGE_H_
#define PAGODA_KERNELS_EXCHANGE_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/cpu/execution.h"
#include "kernels/types.h"

namespace pagoda::kernels {

// All of a block's elements, without padding; `dim` is head_dim, or value_dim of values.
enum class ExchangeForm : uint8_t {
  // vLLM's K cache: [block][kv_head][dim / x][token][x], x elements being 16 bytes.
  kSplitByX,
  // vLLM's V cache beside it: [block][kv_head][dim][token].
  kTransposed,
  // [block][kv_head][token][dim], the last two in tiles of 32 x 32, row by row, and a tile in four
  // faces of 16 x 16, row by row too: Tenstorrent's TILED_NFACES. Its block floating point is
  // another matter.
  kTiled32,
};

// One part, K or V, of a layer's blocks; elements keep their type and bits. Block i of the other
// form is slots[i] here.
struct ExchangeParams {
  ExchangeForm form = ExchangeForm::kSplitByX;
  const std::byte* part = nullptr;   // kv.keys or kv.values.
  std::byte* blocks = nullptr;       // Contiguous, ExchangeBytes of each slot. Need not be aligned.
  absl::Span<const uint32_t> slots;  // Distinct where blocks are imported.
  KvLayer kv;
};

// Bytes of one block; the same in every form. REQUIRES: `part` is one of the pool's.
uint64_t ExchangeBytes(const ExchangeParams& params);

namespace cpu {
// Synchronous. Errors: those of CheckKvLayer, and InvalidArgument, naming the argument, for a part
// that is neither of the pool's, no `blocks`, elements that do not fill x or 32, tokens_per_block
// that is no multiple of 32 for tiles, a slot outside the pool; nothing is written then.
absl::Status ExportBlocks(const ExchangeParams& params, const Execution& execution = {});
absl::Status ImportBlocks(const ExchangeParams& params, const Execution& execution = {});
}  // namespace cpu

}  // namespace pagoda::kernels

#endif  // PAGODA_KERNELS_EXCHANGE_H_
