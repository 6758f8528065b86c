// K and V in forms of other systems that no strides can express, for the exchange of blocks with
// them.
#ifndef PAGODA_KERNELS_EXCHANGE_H_
#define PAGODA_KERNELS_EXCHANGE_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/types.h"

namespace pagoda::kernels {

enum class ExchangeForm : uint8_t {
  // vLLM's K cache: [block][kv_head][head_dim / x][token][x], x elements being 16 bytes.
  kSplitByX,
  // vLLM's V cache beside it: [block][kv_head][head_dim][token].
  kTransposed,
  // [block][kv_head][token][head_dim], the last two in tiles of 32 x 32, row by row, and a tile in
  // four faces of 16 x 16, row by row, as on Tenstorrent.
  kTiled32,
};

// One part, K or V, of a layer's blocks. `part` is kv.keys or kv.values; elements keep their type
// and bits. Block i of the other form is slots[i] here.
struct ExchangeParams {
  ExchangeForm form = ExchangeForm::kSplitByX;
  const std::byte* part = nullptr;   // kv.keys or kv.values.
  std::byte* blocks = nullptr;       // Contiguous; ExchangeBytes(form, kv) for each slot.
  absl::Span<const uint32_t> slots;  // Distinct where blocks are imported.
  KvLayer kv;
};

// Bytes of one block in that form.
uint64_t ExchangeBytes(ExchangeForm form, const KvLayer& kv);

namespace cpu {
// Synchronous. Errors: InvalidArgument, naming the argument, for a head_dim that is no multiple of
// x or of 32, tokens_per_block that is no multiple of 32 for tiles, a slot outside the pool, a part
// that is neither of the pool's; nothing is written then.
absl::Status ExportBlocks(const ExchangeParams& params);  // Reads the pool, writes `blocks`.
absl::Status ImportBlocks(const ExchangeParams& params);  // Reads `blocks`, writes the pool.
}  // namespace cpu

}  // namespace pagoda::kernels

#endif  // PAGODA_KERNELS_EXCHANGE_H_
