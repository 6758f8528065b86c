// The bytes of real pools of every kind, beside the numbers of SlotMemory: an opaque page, latents
// (K only) and float8 with its scales in each window. What SlotMemory has for a token, these have
// as bytes, written and read through a client's mapping.
#ifndef PAGODA_TESTS_CONFORMANCE_POOL_BYTES_H_
#define PAGODA_TESTS_CONFORMANCE_POOL_BYTES_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "manager/tier_spec.h"
#include "pools/copy_order.h"
#include "pools/layout.h"
#include "pools/pool.h"

namespace pagoda {

class PoolBytes {
 public:
  // The layers that a window has.
  static std::vector<LayerSpec> LayersOf(WindowSize window, uint32_t tokens_per_block);

  // Pools for a cache of such layers. Errors: those of PoolSet::Create and MappedPool::Open.
  static absl::StatusOr<std::unique_ptr<PoolBytes>> Create(const CacheLayout& layout,
                                                           absl::Span<const TierSpec> tiers);

  // Writes what stands for `number` to a token's place in every pool of the window. The block's
  // scales, and the bytes of its opaque pages that are no token's, are written with its first
  // token.
  void Write(WindowSize window, SlotRef slot, uint32_t offset, uint64_t number);
  // Whether that is there; of the first token, with the block's scales.
  bool Holds(WindowSize window, SlotRef slot, uint32_t offset, uint64_t number) const;

  // As the host's carrier does, in whatever order.
  void CarryOut(const CopyOrder& order);
  // What a failed copy may leave in its target.
  void Spoil(const CopyOrder& order);

 private:
  PoolBytes() = default;

  // Calls visit(bytes, value) for each place of a token's number in a slot, where `value` is what
  // has to be there.
  void ForEachPlace(
      WindowSize window, SlotRef slot, uint32_t offset, uint64_t number,
      absl::FunctionRef<void(absl::Span<std::byte> bytes, absl::Span<const std::byte> value)> visit)
      const;

  std::unique_ptr<PoolSet> pools_;
  std::vector<std::unique_ptr<MappedPool>> mapped_;
};

}  // namespace pagoda

#endif  // PAGODA_TESTS_CONFORMANCE_POOL_BYTES_H_
