// The tiles and boxes that the Hopper kernels copy. Producers and consumers share this code, so
// they agree.
#ifndef PAGODA_KERNELS_CUDA_HOPPER_ATTENTION_TILE_HOPPER_H_
#define PAGODA_KERNELS_CUDA_HOPPER_ATTENTION_TILE_HOPPER_H_

#include <cstdint>

#include "kernels/cuda/attention/attention_args.h"
#include "kernels/cuda/attention/attention_tile.h"
#include "kernels/cuda/attention/attention_unit.h"
#include "kernels/cuda/hopper/attention_hopper.h"
#include "kernels/cuda/hopper/hopper.h"

namespace pagoda::kernels::cuda {

// The first tile. Tiles begin at multiples of a box.
template <uint32_t kTokens>
PAGODA_DEVICE uint32_t FirstTile(const HopperLaunch& launch, const Sight& sight) {
  return NextTile<kTokens>(launch.args, sight,
                           sight.first_key / launch.box_tokens * launch.box_tokens);
}

// Whether a row can see any of these keys. Exact without block sparsity.
PAGODA_DEVICE bool SeesBox(const AttentionArgs& args, const Sight& sight, uint32_t key,
                           uint32_t tokens) {
  return key < sight.end_key && key + tokens > sight.first_key &&
         MaySee(args.mask, sight.first_position, sight.last_position, key,
                int64_t{key} + tokens - 1);
}

// Whether some row sees each of these keys. False promises nothing.
PAGODA_DEVICE bool SeesEachKey(const AttentionArgs& args, const Sight& sight, uint32_t key,
                               uint32_t tokens) {
  return key >= sight.first_key && key + tokens <= sight.end_key &&
         (args.mask.window_tokens == 0 || key + tokens <= args.mask.sink_tokens ||
          int64_t{sight.first_position} - key < args.mask.window_tokens);
}

// The slot of the key's box. If no row sees any key of the box: a slot that does not exist, so that
// the box is zeros.
PAGODA_DEVICE uint32_t SlotAt(const HopperLaunch& launch, const Unit& unit, const Sight& sight,
                              uint32_t key) {
  const AttentionArgs& args = launch.args;
  if (!SeesBox(args, sight, key, launch.box_tokens)) return args.kv.num_slots;
  return static_cast<uint32_t>(unit.table[key / args.kv.tokens_per_block]);
}

// The box of a tile that this lane copies: boxes of tokens first, then columns.
template <uint32_t kTokens>
PAGODA_DEVICE uint32_t SlotOfBox(const HopperLaunch& launch, const Unit& unit, const Sight& sight,
                                 uint32_t first) {
  const uint32_t box = LaneIndex() % (kTokens / launch.box_tokens);
  return SlotAt(launch, unit, sight, first + box * launch.box_tokens);
}

// The keys that rows of the unit can see: num_rows rows from first_row on.
PAGODA_DEVICE Sight SightOfRows(const AttentionArgs& args, const Unit& unit, uint32_t first_row,
                                uint32_t num_rows) {
  Sight sight = {.first_position = unit.first_position + first_row / args.group,
                 .last_position = unit.first_position + (first_row + num_rows - 1) / args.group,
                 .end_key = unit.item.end_key,
                 .first_key = unit.item.first_key};
  if (args.mask.causal && sight.last_position + 1 < sight.end_key) {
    sight.end_key = sight.last_position + 1;
  }
  return sight;
}

// The rows of a tile that must be cleared because no row of the unit sees them, although their box
// is seen. Bit i stands for row LaneIndex() + 32 i.
template <uint32_t kTokens>
PAGODA_DEVICE uint32_t UnseenRows(const HopperLaunch& launch, const Unit& unit, const Sight& sight,
                                  uint32_t first) {
  uint32_t unseen = 0;
  if (SeesEachKey(launch.args, sight, first, kTokens)) return unseen;
#pragma unroll
  for (uint32_t i = 0; i < kTokens / kWarpThreads; ++i) {
    const uint32_t key = first + LaneIndex() + i * kWarpThreads;
    const uint32_t box = key / launch.box_tokens * launch.box_tokens;
    if (SeesBox(launch.args, sight, box, launch.box_tokens) &&
        !AnySees(launch.args, unit, sight, key)) {
      unseen |= 1u << i;
    }
  }
  return unseen;
}

// Clears these rows of a tile of kColumns columns.
template <uint32_t kTokens, uint32_t kColumns>
PAGODA_DEVICE void ClearRows(uint32_t tile, uint32_t rows) {
#pragma unroll
  for (uint32_t i = 0; i < kTokens / kWarpThreads; ++i) {
    if ((rows >> i & 1u) == 0) continue;
    for (uint32_t column = 0; column < kColumns; ++column) {
      const uint32_t row =
          tile + (column * kTokens + LaneIndex() + i * kWarpThreads) * kColumnRowBytes;
      for (uint32_t chunk = 0; chunk < 8; ++chunk) StoreShared(row + chunk * 16, Vector16{});
    }
  }
}

}  // namespace pagoda::kernels::cuda

#endif  // PAGODA_KERNELS_CUDA_HOPPER_ATTENTION_TILE_HOPPER_H_
