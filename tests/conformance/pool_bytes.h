// The bytes of real pools of every kind, in addition to the numbers of SlotMemory: an opaque page,
// latents (K only) and float8 with its scales in each window. They hold as bytes what SlotMemory
// holds for a token, written and read through a client's mapping.
#ifndef PAGODA_TESTS_CONFORMANCE_POOL_BYTES_H_
#define PAGODA_TESTS_CONFORMANCE_POOL_BYTES_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "manager/words/tier_spec.h"
#include "pools/layout.h"
#include "pools/order.h"
#include "pools/pool.h"

namespace pagoda {

class PoolBytes {
 public:
  // The layers that a window has.
  static std::vector<LayerSpec> LayersOf(WindowSize window, uint32_t tokens_per_block);

  // Makes pools for a cache of such layers. Errors: those of PoolSet::Create and MappedPool::Open.
  static absl::StatusOr<std::unique_ptr<PoolBytes>> Create(const CacheLayout& layout,
                                                           absl::Span<const TierSpec> tiers);

  // Writes the bytes for `number` to a token's place in every pool of the window. With a block's
  // first token it also writes the block's scales, and the bytes of its opaque pages that belong to
  // no token.
  void Write(WindowSize window, SlotRef slot, uint32_t offset, uint64_t number);
  // Whether these bytes are there. For a block's first token it also checks the scales.
  bool Holds(WindowSize window, SlotRef slot, uint32_t offset, uint64_t number) const;

  // Carries the order out as the host's carrier does, in any order.
  void CarryOut(const Order& order);
  // Writes what a failed copy can leave in its target.
  void Spoil(const Order& order);

 private:
  PoolBytes() = default;

  // Calls visit(bytes, value) for each place of a token's number in a slot. `value` is the expected
  // content.
  void ForEachPlace(
      WindowSize window, SlotRef slot, uint32_t offset, uint64_t number,
      absl::FunctionRef<void(absl::Span<std::byte> bytes, absl::Span<const std::byte> value)> visit)
      const;

  std::unique_ptr<PoolSet> pools_;
  std::vector<std::unique_ptr<MappedPool>> mapped_;
};

}  // namespace pagoda

#endif  // PAGODA_TESTS_CONFORMANCE_POOL_BYTES_H_
