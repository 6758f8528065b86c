// Which tiles and boxes the kernels for Hopper bring; by producers and consumers alike, so that
// they agree.
#ifndef PAGODA_KERNELS_CUDA_ATTENTION_TILE_HOPPER_H_
#define PAGODA_KERNELS_CUDA_ATTENTION_TILE_HOPPER_H_

#include <cstdint>

#include "kernels/cuda/attention_args.h"
#include "kernels/cuda/attention_hopper.h"
#include "kernels/cuda/attention_tile.h"
#include "kernels/cuda/attention_unit.h"
#include "kernels/cuda/device.h"

namespace pagoda::kernels::cuda {

// The first of all. Tiles begin at multiples of a box.
template <uint32_t kTokens>
PAGODA_DEVICE uint32_t FirstTile(const HopperLaunch& launch, const Sight& sight) {
  return NextTile<kTokens>(launch.args, sight,
                           sight.first_key / launch.box_tokens * launch.box_tokens);
}

// Whether a row sees any of these keys. Without block sparsity it is exact.
PAGODA_DEVICE bool SeesBox(const AttentionArgs& args, const Sight& sight, uint32_t key,
                           uint32_t tokens) {
  return key < sight.end_key && key + tokens > sight.first_key &&
         MaySee(args.mask, sight.first_position, sight.last_position, key,
                int64_t{key} + tokens - 1);
}

// The slot of the box with the key; one that there is not, whose box is zeros, where no row sees
// any of it.
PAGODA_DEVICE uint32_t SlotAt(const HopperLaunch& launch, const Unit& unit, const Sight& sight,
                              uint32_t key) {
  const AttentionArgs& args = launch.args;
  if (!SeesBox(args, sight, key, launch.box_tokens)) return args.kv.num_slots;
  return static_cast<uint32_t>(unit.table[key / args.kv.tokens_per_block]);
}

// That of a tile's box which the lane has; boxes of tokens first, columns then.
template <uint32_t kTokens>
PAGODA_DEVICE uint32_t SlotOfBox(const HopperLaunch& launch, const Unit& unit, const Sight& sight,
                                 uint32_t first) {
  const uint32_t box = LaneIndex() % (kTokens / launch.box_tokens);
  return SlotAt(launch, unit, sight, first + box * launch.box_tokens);
}

}  // namespace pagoda::kernels::cuda

#endif  // PAGODA_KERNELS_CUDA_ATTENTION_TILE_HOPPER_H_
