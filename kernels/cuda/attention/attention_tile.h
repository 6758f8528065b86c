// Code that the kernels on tensor cores share: tiles of K and V in shared memory. Their rows are
// copied from the blocks that a table names.
#ifndef PAGODA_KERNELS_CUDA_ATTENTION_ATTENTION_TILE_H_
#define PAGODA_KERNELS_CUDA_ATTENTION_ATTENTION_TILE_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/attention/attention_args.h"
#include "kernels/cuda/attention/attention_unit.h"
#include "kernels/cuda/attention/attention_walk.h"
#include "kernels/cuda/device/device.h"

namespace pagoda::kernels::cuda {

// A tile's rows are tokens (or queries) of kRowBytes, in chunks of 16 bytes. The position of chunk
// c in row r also depends on r, so that eight lanes that read one chunk of eight rows touch all
// banks.
template <uint32_t kRowBytes>
PAGODA_DEVICE uint32_t TileOffset(uint32_t row, uint32_t chunk) {
  constexpr uint32_t kChunks = kRowBytes / 16;
  constexpr uint32_t kRowsOfAllBanks = kRowBytes >= 128 ? 1 : 128 / kRowBytes;
  constexpr uint32_t kPatterns = kChunks < 8 ? kChunks : 8;
  return row * kRowBytes + (chunk ^ (row / kRowsOfAllBanks % kPatterns)) * 16;
}

// The address of the chunk `chunks` after the one at `address`, in the same row of a tile.
// REQUIRES: the sum of the two chunk numbers equals their exclusive or; for example, `chunks` is
// even and `address` is the row's first or second chunk. Tiles begin at multiples of a row's bytes.
PAGODA_DEVICE uint32_t ChunksAfter(uint32_t address, uint32_t chunks) {
  return address ^ (chunks * 16);
}

inline constexpr uint64_t kNoRow = ~uint64_t{0};

// Some rows of a unit at the positions first to last, and the keys that they can see.
struct Sight {
  uint32_t first_position;
  uint32_t last_position;
  uint32_t end_key;
  uint32_t first_key = 0;  // Above 0 if a tile can begin before the unit's keys.
};

// The first tile of `tokens` tokens, at `first` or later, of which a row can see a key.
template <uint32_t kTokens>
PAGODA_DEVICE uint32_t NextTile(const AttentionArgs& args, const Sight& sight, uint32_t first) {
  return NextSeenTile<kTokens>(args.mask, sight.first_position, sight.last_position, sight.end_key,
                               first);
}

// Whether any row of the unit sees the key. A key that no row sees is not read and is zero in the
// tile: a weight of 0 times NaN would be NaN.
PAGODA_DEVICE bool AnySees(const AttentionArgs& args, const Unit& unit, const Sight& sight,
                           uint32_t key) {
  const AttentionMask& mask = args.mask;
  if (key < sight.first_key || key >= sight.end_key) return false;
  if (!MaySee(mask, sight.first_position, sight.last_position, key, key)) return false;
  if (mask.sparsity.block_tokens == 0) return true;
  // 32 bits: with a 64-bit counter PrefillKernel spills registers.
  for (uint32_t position = sight.first_position; position <= sight.last_position; ++position) {
    for (uint32_t g = 0; g < args.group; ++g) {
      if (Sees(mask, unit.kv_head * args.group + g, position, key)) return true;
    }
  }
  return false;
}

// The offset of the key's row in K and in V; kNoRow if no row of the unit sees it.
PAGODA_DEVICE uint64_t FindRow(const AttentionArgs& args, const Unit& unit, const Sight& sight,
                               uint32_t key) {
  return AnySees(args, unit, sight, key) ? TokenOffset(args, unit, key) : kNoRow;
}

// The scales of a key in a pool whose slots have their own; 1 if no row of the unit sees it.
PAGODA_DEVICE TokenScales FindScales(const AttentionArgs& args, const Unit& unit,
                                     const Sight& sight, uint32_t key) {
  return AnySees(args, unit, sight, key) ? ScalesOfToken(args, unit, key) : TokenScales{};
}

// A warp copies kRows rows of a tile, from first_row on. A lane has the offset of row lane % kRows
// of them. Chunks from `used_chunks` on, and rows with kNoRow, become zeros.
template <uint32_t kRowBytes, uint32_t kRows>
PAGODA_DEVICE void CopyRows(uint32_t tile, uint32_t first_row, const std::byte* base,
                            uint64_t offset, uint32_t used_chunks) {
  constexpr uint32_t kChunks = kRowBytes / 16;
  constexpr uint32_t kRowsAtATime = kWarpThreads / kChunks;
  static_assert(kRows % kRowsAtATime == 0 && kRows <= kWarpThreads);
  const uint32_t chunk = LaneIndex() % kChunks;
#pragma unroll
  for (uint32_t i = 0; i < kRows; i += kRowsAtATime) {
    const uint32_t row = i + LaneIndex() / kChunks;
    const uint64_t row_offset = Shuffle64(offset, row);
    const bool present = row_offset != kNoRow && chunk < used_chunks;
    CopyAsync16(tile + TileOffset<kRowBytes>(first_row + row, chunk),
                present ? base + row_offset + chunk * 16 : base, present);
  }
}

// Copies the rows first_row to first_row + num_rows - 1 of the unit's queries to a tile of kRows
// rows of kDim elements, and fills the rest with zeros. All threads of the block take part.
//
// kForFloat8: writes Q in the order in which K of 8 bits leaves a load of 16-bit matrices. For the
// product, a thread needs elements 2c, 2c+1, 2c+8 and 2c+9 of 16; the load gives it elements 4c to
// 4c+3 of K in this order, so Q has its elements 4c to 4c+3 there.
template <uint32_t kDim, uint32_t kRows, bool kForFloat8>
PAGODA_DEVICE void LoadQueries(const AttentionArgs& args, const Unit& unit, uint32_t first_row,
                               uint32_t num_rows, uint32_t tile, uint32_t num_threads) {
  constexpr uint32_t kRowBytes = kDim * 2;
  constexpr uint32_t kChunks = kRowBytes / 16;
  for (uint32_t i = ThreadIndex(); i < kRows * kChunks; i += num_threads) {
    const uint32_t row = i / kChunks;
    const uint32_t chunk = i % kChunks;
    Vector16 vector = {};
    if (row < num_rows && chunk * 8 < args.kv.head_dim) {
      const uint32_t token = (first_row + row) / args.group;
      const uint32_t head = unit.kv_head * args.group + (first_row + row) % args.group;
      const uint64_t element = (uint64_t{unit.item.first_query} + token) * args.query_token_stride +
                               uint64_t{head} * args.kv.head_dim + chunk * 8;
      vector = LoadGlobal16(args.query + element * 2);
    }
    if constexpr (kForFloat8) {
      const uint32_t half = chunk % 2 * 8;
      StoreShared(tile + TileOffset<kRowBytes>(row, chunk / 2 * 2) + half,
                  Vector8{{vector.words[0], vector.words[2]}});
      StoreShared(tile + TileOffset<kRowBytes>(row, chunk / 2 * 2 + 1) + half,
                  Vector8{{vector.words[1], vector.words[3]}});
    } else {
      StoreShared(tile + TileOffset<kRowBytes>(row, chunk), vector);
    }
  }
}

// Stores `element` and the next element of a row's final result.
template <class T>
PAGODA_DEVICE void StorePair(const AttentionArgs& args, const Unit& unit, uint32_t row,
                             uint32_t element, float first, float second) {
  const uint32_t token = row / args.group;
  const uint32_t head = unit.kv_head * args.group + row % args.group;
  if (unit.item.partial == kWholeItem) {
    const uint64_t at = (uint64_t{unit.item.first_query} + token) * args.output_token_stride +
                        uint64_t{head} * args.value_dim + element;
    *reinterpret_cast<uint32_t*>(args.output + at * 2) = PackPair<T>(first, second);
  } else {
    const uint64_t at =
        ((uint64_t{unit.item.partial} + token) * args.num_heads + head) * args.value_dim + element;
    StoreGlobal8(args.partial_outputs + at,
                 Vector8{{std::bit_cast<uint32_t>(first), std::bit_cast<uint32_t>(second)}});
  }
}

PAGODA_DEVICE void StoreLogSum(const AttentionArgs& args, const Unit& unit, uint32_t row,
                               float log_sum) {
  const uint32_t token = row / args.group;
  const uint32_t head = unit.kv_head * args.group + row % args.group;
  if (unit.item.partial != kWholeItem) {
    args.partial_log_sums[(uint64_t{unit.item.partial} + token) * args.num_heads + head] = log_sum;
  } else if (args.lse != nullptr) {
    args.lse[(uint64_t{unit.item.first_query} + token) * args.num_heads + head] = log_sum * kLn2;
  }
}

// The score of a row and a key as a base-2 logarithm; -infinity if the row does not see the key.
// For tiles that need more than a factor.
PAGODA_DEVICE float MaskedScore(const AttentionArgs& args, const Unit& unit, const Sight& sight,
                                float scale, uint32_t row, uint32_t key, float product) {
  if (key < sight.first_key || key >= sight.end_key || row >= unit.num_rows) {
    return NegativeInfinity();
  }
  const uint32_t head = unit.kv_head * args.group + row % args.group;
  const int64_t position = unit.first_position + row / args.group;
  if (!Sees(args.mask, head, position, key)) return NegativeInfinity();
  return Score2(args, scale, product, head, key - position);
}

}  // namespace pagoda::kernels::cuda

#endif  // PAGODA_KERNELS_CUDA_ATTENTION_ATTENTION_TILE_H_
