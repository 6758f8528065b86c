// Converts blocks from and to forms of other systems that strides cannot express. No engine uses
// these forms, so they are here and not in kernels/.
#ifndef PAGODA_TESTS_KERNELS_EXCHANGE_H_
#define PAGODA_TESTS_KERNELS_EXCHANGE_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/execution/execution.h"
#include "kernels/types.h"

namespace pagoda::kernels {

// The form of a block. Each form has all elements of the block without padding. `dim` is head_dim,
// or value_dim for values.
enum class ExchangeForm : uint8_t {
  // vLLM's K cache: [block][kv_head][dim / x][token][x]; x elements have 16 bytes.
  kSplitByX,
  // vLLM's V cache: [block][kv_head][dim][token].
  kTransposed,
  // [block][kv_head][token][dim]. The last two dimensions are in tiles of 32 x 32, row by row. A
  // tile is in four faces of 16 x 16, row by row. Tenstorrent's TILED_NFACES, without its block
  // floating point.
  kTiled32,
};

// One part (K or V) of a layer's blocks. Elements keep their type and bits. Block i of `blocks` is
// slot slots[i] of the pool.
struct ExchangeParams {
  ExchangeForm form = ExchangeForm::kSplitByX;
  const std::byte* part = nullptr;   // kv.keys or kv.values.
  std::byte* blocks = nullptr;       // Contiguous; ExchangeBytes per slot. Need not be aligned.
  absl::Span<const uint32_t> slots;  // Must be distinct for an import.
  KvLayer kv;
};

// The bytes of one block, the same in every form. REQUIRES: `part` is kv.keys or kv.values.
uint64_t ExchangeBytes(const ExchangeParams& params);

namespace cpu {
// Synchronous. Errors: those of CheckKvLayer, and InvalidArgument, naming the argument, for a part
// that is neither kv.keys nor kv.values, null `blocks`, a dim that is not a multiple of x or 32, a
// tokens_per_block that is not a multiple of 32 (tiles), or a slot outside the pool; then nothing
// is written.
absl::Status ExportBlocks(const ExchangeParams& params, const Execution& execution = {});
absl::Status ImportBlocks(const ExchangeParams& params, const Execution& execution = {});
}  // namespace cpu

}  // namespace pagoda::kernels

#endif  // PAGODA_TESTS_KERNELS_EXCHANGE_H_
