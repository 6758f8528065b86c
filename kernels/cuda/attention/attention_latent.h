// Attention over latents on tensor cores: multi-head latent attention (DeepSeek-V2). All query
// heads of a token share one key of up to 576 elements, whose first 512 elements are its value.
//
// Heads and tokens of a chunk are the columns, 32 at a time. Keys are the left matrix's rows, 64 at
// a time, and are copied once for both products:
//   S^T = K Q^T,  O^T = V^T P^T.
// A block has eight warps. Warp w has 16 keys and 16 columns of S^T (keys 16 (w % 4), columns 16 (w
// / 4)), and 64 of the value's elements of O^T for all columns. Weights and the columns' largest
// scores thus go through shared memory. The next tile of keys is copied while one is multiplied.
#ifndef PAGODA_KERNELS_CUDA_ATTENTION_ATTENTION_LATENT_H_
#define PAGODA_KERNELS_CUDA_ATTENTION_ATTENTION_LATENT_H_

#include <cstdint>

#include "kernels/cuda/attention/attention_args.h"
#include "kernels/cuda/attention/attention_tile.h"
#include "kernels/cuda/attention/attention_unit.h"
#include "kernels/cuda/device/device.h"

namespace pagoda::kernels::cuda {

inline constexpr uint32_t kMostLatentElements = 576;
inline constexpr uint32_t kMostLatentValues = 512;

// T: Half or BFloat16, as in the pool.
template <class T>
class LatentKernel {
 public:
  static constexpr uint32_t kWarps = 8;
  static constexpr uint32_t kThreads = kWarps * kWarpThreads;
  static constexpr uint32_t kMinBlocks = 1;
  static constexpr uint32_t kTokens = 64;
  static constexpr uint32_t kRows = 32;
  static constexpr uint32_t kRowBytes = kMostLatentElements * 2;
  static constexpr uint32_t kTileBytes = kTokens * kRowBytes;
  static constexpr uint32_t kQueryBytes = kRows * kRowBytes;
  static constexpr uint32_t kWeightRowBytes = kRows * 2;
  static constexpr uint32_t kWeightBytes = kTokens * kWeightRowBytes;
  static constexpr uint32_t kResultBytes = (kMostLatentValues + 4) * 4;  // Per row.
  static constexpr uint32_t kStateBytes = kTokens / 16 * kRows * 4;
  static constexpr uint32_t kSharedBytes =
      kQueryBytes + 2 * kTileBytes + kWeightBytes + 2 * kStateBytes;
  static_assert(kRows * kResultBytes <= 2 * kTileBytes);
  using Args = AttentionLaunch;

  static PAGODA_DEVICE void Run(const AttentionLaunch& launch) {
    const AttentionArgs& args = launch.args;
    const uint64_t num_units = NumUnits(args, launch.kind);
#pragma unroll 1
    for (uint64_t u = BlockIndex(); u < num_units; u += GridBlocks()) {
      const Unit unit = FindUnit(args, launch.kind, u);
#pragma unroll 1
      for (uint32_t row = 0; row < unit.num_rows; row += kRows) Attend(args, unit, row);
    }
  }

 private:
  static constexpr uint32_t kChunks = kRowBytes / 16;
  static constexpr uint32_t kSteps = kMostLatentElements / 16;  // Products along the key.
  static constexpr uint32_t kColumnTiles = kRows / 8;
  static constexpr uint32_t kWarpsTiles = 2;  // Column tiles (of 8) of S^T per warp.
  static constexpr uint32_t kValueTiles = kMostLatentValues / 16 / kWarps;
  static constexpr uint32_t kTokenTiles = kTokens / 16;

  // Element r of sums[i][t] belongs to column 8 t + 2 (lane % 4) + r % 2, and to the value's
  // element 64 warp + 16 i + lane / 4 + r / 2 * 8.
  struct WarpState {
    float sums[kValueTiles][kColumnTiles][4];
    float largest[kColumnTiles][2];
    float weights[kWarpsTiles][2];  // The sums, of the lane's keys and the warp's columns.
  };

  static PAGODA_DEVICE uint32_t QueryBase() { return SharedBase(); }
  static PAGODA_DEVICE uint32_t Tile(uint32_t i) {
    return SharedBase() + kQueryBytes + i % 2 * kTileBytes;
  }
  static PAGODA_DEVICE uint32_t WeightBase() { return SharedBase() + kQueryBytes + 2 * kTileBytes; }
  // fp32 by tile of keys and column: the largest scores, and at the end the sums of weights.
  static PAGODA_DEVICE uint32_t LargestBase() { return WeightBase() + kWeightBytes; }
  static PAGODA_DEVICE uint32_t SumBase() { return LargestBase() + kStateBytes; }
  static PAGODA_DEVICE uint32_t StateOffset(uint32_t tile, uint32_t column) {
    return (tile * kRows + column) * 4;
  }

  static PAGODA_DEVICE uint32_t WarpsTokens() { return WarpIndex() % kTokenTiles; }
  static PAGODA_DEVICE uint32_t WarpsColumns() { return WarpIndex() / kTokenTiles * kWarpsTiles; }

  static PAGODA_DEVICE void Attend(const AttentionArgs& args, const Unit& unit,
                                   uint32_t first_row) {
    const uint32_t num_rows = unit.num_rows - first_row < kRows ? unit.num_rows - first_row : kRows;
    Sight sight = {.first_position = unit.first_position + first_row / args.group,
                   .last_position = unit.first_position + (first_row + num_rows - 1) / args.group,
                   .end_key = unit.item.end_key};
    if (args.mask.causal && sight.last_position + 1 < sight.end_key) {
      sight.end_key = sight.last_position + 1;
    }
    SyncThreads();  // The previous rows have been stored.
    LoadQueries<kMostLatentElements, kRows, false>(args, unit, first_row, num_rows, QueryBase(),
                                                   kThreads);
    WarpState state;
    Clear(state);
    uint32_t first = NextTile<kTokens>(args, sight, unit.item.first_key);
    if (first < sight.end_key) CopyTile(args, unit, sight, first, Tile(0));
    CommitCopies();
#pragma unroll 1
    for (uint32_t i = 0; first < sight.end_key; ++i) {
      WaitForCopies<0>();
      SyncThreads();  // The tile is there, and the previous one has been read.
      const uint32_t next = NextTile<kTokens>(args, sight, first + kTokens);
      if (next < sight.end_key) CopyTile(args, unit, sight, next, Tile(i + 1));
      CommitCopies();
      float scores[kWarpsTiles][4];
      Multiply(Tile(i), scores);
      Score(args, unit, sight, first_row, first, scores);
      StoreLargest(scores);
      SyncThreads();
      MoveReference(state);
      Weigh(scores, state);
      SyncThreads();  // The weights are there.
      AddValues(Tile(i), state);
      first = next;
    }
    WaitForCopies<0>();
    Store(args, unit, first_row, num_rows, state);
  }

  // A warp copies 8 keys; a lane has the offset of key lane % 8 of them.
  static PAGODA_DEVICE void CopyTile(const AttentionArgs& args, const Unit& unit,
                                     const Sight& sight, uint32_t first, uint32_t tile) {
    constexpr uint32_t kCopiedRows = kTokens / kWarps;
    const uint32_t first_row = WarpIndex() * kCopiedRows;
    const uint64_t offset =
        FindRow(args, unit, sight, first + first_row + LaneIndex() % kCopiedRows);
    const uint32_t used_chunks = args.kv.head_dim / 8;
#pragma unroll 6
    for (uint32_t i = LaneIndex(); i < kCopiedRows * kChunks; i += kWarpThreads) {
      const uint32_t row = i / kChunks;
      const uint32_t chunk = i % kChunks;
      const uint64_t row_offset = Shuffle64(offset, row);
      const bool present = row_offset != kNoRow && chunk < used_chunks;
      CopyAsync16(tile + TileOffset<kRowBytes>(first_row + row, chunk),
                  present ? args.kv.keys + row_offset + chunk * 16 : args.kv.keys, present);
    }
  }

  static PAGODA_DEVICE void Clear(WarpState& state) {
#pragma unroll
    for (uint32_t t = 0; t < kColumnTiles; ++t) {
#pragma unroll
      for (uint32_t i = 0; i < kValueTiles; ++i) {
        for (uint32_t r = 0; r < 4; ++r) state.sums[i][t][r] = 0;
      }
      for (uint32_t e = 0; e < 2; ++e) state.largest[t][e] = NegativeInfinity();
    }
#pragma unroll
    for (uint32_t t = 0; t < kWarpsTiles; ++t) {
      for (uint32_t e = 0; e < 2; ++e) state.weights[t][e] = 0;
    }
  }

  // Computes the warp's part of S^T.
  static PAGODA_DEVICE void Multiply(uint32_t keys, float (&scores)[kWarpsTiles][4]) {
    const uint32_t lane = LaneIndex();
#pragma unroll
    for (uint32_t t = 0; t < kWarpsTiles; ++t) {
      for (uint32_t r = 0; r < 4; ++r) scores[t][r] = 0;
    }
    const uint32_t key = WarpsTokens() * 16 + lane % 16;
    const uint32_t query = WarpsColumns() * 8 + lane % 8 + lane / 16 * 8;
#pragma unroll 4
    for (uint32_t step = 0; step < kSteps; ++step) {
      uint32_t rows[4];
      uint32_t columns[4];
      LoadMatrices(rows, keys + TileOffset<kRowBytes>(key, 2 * step + lane / 16));
      LoadMatrices(columns, QueryBase() + TileOffset<kRowBytes>(query, 2 * step + lane / 8 % 2));
      MultiplyMatrices<T>(scores[0], rows, columns[0], columns[1]);
      MultiplyMatrices<T>(scores[1], rows, columns[2], columns[3]);
    }
  }

  // Turns products into scores, as base-2 logarithms.
  static PAGODA_DEVICE void Score(const AttentionArgs& args, const Unit& unit, const Sight& sight,
                                  uint32_t first_row, uint32_t first,
                                  float (&scores)[kWarpsTiles][4]) {
    const uint32_t key = first + WarpsTokens() * 16 + LaneIndex() / 4;
    const uint32_t row = first_row + WarpsColumns() * 8 + LaneIndex() % 4 * 2;
    const bool plain =
        first + kTokens <= sight.end_key && args.soft_cap == 0 && args.alibi_slopes == nullptr &&
        SeesAll(args.mask, sight.first_position, sight.last_position, first, first + kTokens - 1);
#pragma unroll
    for (uint32_t t = 0; t < kWarpsTiles; ++t) {
#pragma unroll
      for (uint32_t r = 0; r < 4; ++r) {
        if (plain) {
          scores[t][r] *= args.scale * kLog2E;
        } else {
          scores[t][r] = MaskedScore(args, unit, sight, args.scale, row + 8 * t + r % 2,
                                     key + r / 2 * 8, scores[t][r]);
        }
      }
    }
  }

  static PAGODA_DEVICE void StoreLargest(const float (&scores)[kWarpsTiles][4]) {
#pragma unroll
    for (uint32_t t = 0; t < kWarpsTiles; ++t) {
      float largest[2];
#pragma unroll
      for (uint32_t e = 0; e < 2; ++e) {
        largest[e] = LargerOf(scores[t][e + 2], LargerOf(scores[t][e], NegativeInfinity()));
        for (uint32_t mask = 4; mask < kWarpThreads; mask *= 2) {
          largest[e] = LargerOf(largest[e], ShuffleXor(largest[e], mask));
        }
      }
      if (LaneIndex() < 4) StoreState(LargestBase(), WarpsColumns() + t, largest);
    }
  }

  // The largest scores of the lane's two columns of column tile t, for the warp's keys.
  static PAGODA_DEVICE void StoreState(uint32_t base, uint32_t t, const float (&pair)[2]) {
    StoreShared(base + StateOffset(WarpsTokens(), 8 * t + LaneIndex() % 4 * 2),
                Vector8{{std::bit_cast<uint32_t>(pair[0]), std::bit_cast<uint32_t>(pair[1])}});
  }

  // Moves all columns' references to the largest scores, and rescales their sums.
  static PAGODA_DEVICE void MoveReference(WarpState& state) {
#pragma unroll
    for (uint32_t t = 0; t < kColumnTiles; ++t) {
      float largest[2] = {state.largest[t][0], state.largest[t][1]};
#pragma unroll
      for (uint32_t tile = 0; tile < kTokenTiles; ++tile) {
        const auto pair =
            LoadShared<Vector8>(LargestBase() + StateOffset(tile, 8 * t + LaneIndex() % 4 * 2));
        for (uint32_t e = 0; e < 2; ++e) {
          largest[e] = LargerOf(std::bit_cast<float>(pair.words[e]), largest[e]);
        }
      }
#pragma unroll
      for (uint32_t e = 0; e < 2; ++e) {
        const float factor =
            largest[e] == state.largest[t][e] ? 1.0f : Exp2(state.largest[t][e] - largest[e]);
        state.largest[t][e] = largest[e];
#pragma unroll
        for (uint32_t i = 0; i < kValueTiles; ++i) {
          state.sums[i][t][e] *= factor;
          state.sums[i][t][e + 2] *= factor;
        }
#pragma unroll
        for (uint32_t own = 0; own < kWarpsTiles; ++own) {
          if (WarpsColumns() + own == t) state.weights[own][e] *= factor;
        }
      }
    }
  }

  // Turns the warp's scores into weights, in shared memory as [key][column].
  static PAGODA_DEVICE void Weigh(const float (&scores)[kWarpsTiles][4], WarpState& state) {
#pragma unroll
    for (uint32_t t = 0; t < kWarpsTiles; ++t) {
      float reference[2];
#pragma unroll
      for (uint32_t e = 0; e < 2; ++e) {
        // Registers cannot be indexed at run time.
        const float largest =
            WarpsColumns() == 0 ? state.largest[t][e] : state.largest[kWarpsTiles + t][e];
        // No key seen yet: all scores are -infinity, and weights 0.
        reference[e] = largest == NegativeInfinity() ? 0.0f : largest;
      }
#pragma unroll
      for (uint32_t half = 0; half < 2; ++half) {
        const float first = Exp2(scores[t][2 * half] - reference[0]);
        const float second = Exp2(scores[t][2 * half + 1] - reference[1]);
        state.weights[t][0] += first;
        state.weights[t][1] += second;
        const uint32_t key = WarpsTokens() * 16 + LaneIndex() / 4 + half * 8;
        StoreShared(WeightBase() + TileOffset<kWeightRowBytes>(key, WarpsColumns() + t) +
                        LaneIndex() % 4 * 4,
                    PackPair<T>(first, second));
      }
    }
  }

  // O^T += V^T P^T, for the warp's elements.
  static PAGODA_DEVICE void AddValues(uint32_t values, WarpState& state) {
    const uint32_t lane = LaneIndex();
#pragma unroll
    for (uint32_t k = 0; k < kTokenTiles; ++k) {
      uint32_t columns[kColumnTiles][2];
#pragma unroll
      for (uint32_t t = 0; t < kColumnTiles; t += 2) {
        uint32_t matrices[4];
        LoadMatricesTransposed(matrices, WeightBase() + TileOffset<kWeightRowBytes>(
                                                            16 * k + lane % 16, t + lane / 16));
        columns[t][0] = matrices[0];
        columns[t][1] = matrices[1];
        columns[t + 1][0] = matrices[2];
        columns[t + 1][1] = matrices[3];
      }
#pragma unroll
      for (uint32_t i = 0; i < kValueTiles; ++i) {
        uint32_t rows[4];
        LoadMatricesTransposed(
            rows,
            values + TileOffset<kRowBytes>(16 * k + lane % 8 + lane / 16 * 8,
                                           2 * (WarpIndex() * kValueTiles + i) + lane / 8 % 2));
#pragma unroll
        for (uint32_t t = 0; t < kColumnTiles; ++t) {
          MultiplyMatrices<T>(state.sums[i][t], rows, columns[t][0], columns[t][1]);
        }
      }
    }
  }

  static PAGODA_DEVICE void Store(const AttentionArgs& args, const Unit& unit, uint32_t first_row,
                                  uint32_t num_rows, const WarpState& state) {
#pragma unroll
    for (uint32_t t = 0; t < kWarpsTiles; ++t) {
      float sums[2];
#pragma unroll
      for (uint32_t e = 0; e < 2; ++e) {
        sums[e] = state.weights[t][e];
        for (uint32_t mask = 4; mask < kWarpThreads; mask *= 2) {
          sums[e] += ShuffleXor(sums[e], mask);
        }
      }
      if (LaneIndex() < 4) StoreState(SumBase(), WarpsColumns() + t, sums);
    }
    SyncThreads();  // No warp reads the keys any more; the results take their place.
    const bool whole = unit.item.partial == kWholeItem;
#pragma unroll
    for (uint32_t t = 0; t < kColumnTiles; ++t) {
#pragma unroll
      for (uint32_t e = 0; e < 2; ++e) {
        const uint32_t column = 8 * t + LaneIndex() % 4 * 2 + e;
        float sum = 0;
#pragma unroll
        for (uint32_t tile = 0; tile < kTokenTiles; ++tile) {
          sum += LoadShared<float>(SumBase() + StateOffset(tile, column));
        }
        if (column >= num_rows) continue;
        const uint32_t row = first_row + column;
        const RowEnd end = EndRow(args, state.largest[t][e], sum,
                                  unit.kv_head * args.group + row % args.group, whole);
        if (WarpIndex() == 0 && LaneIndex() < 4) StoreLogSum(args, unit, row, end.log_sum);
        const uint32_t result = Tile(0) + column * kResultBytes;
#pragma unroll
        for (uint32_t i = 0; i < kValueTiles; ++i) {
          const uint32_t element = 16 * (WarpIndex() * kValueTiles + i) + LaneIndex() / 4;
          StoreShared(result + element * 4, state.sums[i][t][e] * end.factor);
          StoreShared(result + (element + 8) * 4, state.sums[i][t][e + 2] * end.factor);
        }
      }
    }
    SyncThreads();
    const uint32_t pairs = args.value_dim / 2;
    for (uint32_t i = ThreadIndex(); i < num_rows * pairs; i += kThreads) {
      const uint32_t element = i % pairs * 2;
      const auto words = LoadShared<Vector8>(Tile(0) + i / pairs * kResultBytes + element * 4);
      StorePair<T>(args, unit, first_row + i / pairs, element, std::bit_cast<float>(words.words[0]),
                   std::bit_cast<float>(words.words[1]));
    }
  }
};

}  // namespace pagoda::kernels::cuda

#endif  // PAGODA_KERNELS_CUDA_ATTENTION_ATTENTION_LATENT_H_
