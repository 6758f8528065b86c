// Attention over latents on Hopper's tensor cores: multi-head latent attention (DeepSeek-V2), over
// pools of 16 bits. All query heads of a token share one key of up to 576 elements, whose first 512
// elements are its value.
//
// A block has 64 rows of a unit (row = token * group + head) against all keys, by wgmma. The
// sums of 64 rows x 512 elements take the registers of two warpgroups, which share the work, like
// in FlashMLA (DeepSeek, 2025). Keys come by TMA, 32 a tile, into four stages; both products read
// them there. Two tiles are a pair: consumer w computes S of the pair's tile w, and O of the
// value's half w for both tiles. The consumers exchange their largest scores, and their weights, in
// shared memory. Meanwhile the next pair comes into the other two stages.
//
// Invariants
// 1. Tile w of the block's pair p, counted over all its rows, is in stage p % 2 * 2 + w. The last
// pair of some rows can be without tile 1. The producer and the consumers walk the same tiles in
// the same order: from FirstTile by NextTile.
// 2. A box of which no row sees a key is zeros; its table entry is not read. Keys in other boxes
// that no row sees are cleared before "full" is reached, as in HopperPrefillKernel.
// 3. A consumer writes its weights when the other one has ended its products of the previous pair,
// and fences: products see them after the next barrier.
// 4. A consumer arrives at "empty" after its products of the stage.
#ifndef PAGODA_KERNELS_CUDA_HOPPER_ATTENTION_LATENT_HOPPER_H_
#define PAGODA_KERNELS_CUDA_HOPPER_ATTENTION_LATENT_HOPPER_H_

#include <cstdint>

#include "kernels/cuda/attention/attention_args.h"
#include "kernels/cuda/attention/attention_latent.h"
#include "kernels/cuda/attention/attention_tile.h"
#include "kernels/cuda/attention/attention_unit.h"
#include "kernels/cuda/attention/attention_walk.h"
#include "kernels/cuda/hopper/attention_hopper.h"
#include "kernels/cuda/hopper/attention_softmax_hopper.h"
#include "kernels/cuda/hopper/attention_tile_hopper.h"
#include "kernels/cuda/hopper/attention_work_hopper.h"
#include "kernels/cuda/hopper/hopper.h"

namespace pagoda::kernels::cuda {

// T: Half or BFloat16, as in the pool.
template <class T>
class HopperLatentKernel {
 public:
  static constexpr uint32_t kConsumers = 2;  // Warpgroups.
  static constexpr uint32_t kConsumerThreads = kConsumers * kWarpgroupThreads;
  static constexpr uint32_t kThreads = kConsumerThreads + kWarpgroupThreads;
  static constexpr uint32_t kMinBlocks = 1;
  static constexpr uint32_t kTokens = 32;
  static constexpr uint32_t kRows = 64;
  static constexpr uint32_t kStages = 4;
  static constexpr uint32_t kColumns = kMostLatentElements / kColumnElements;
  static constexpr uint32_t kValueColumns = kMostLatentValues / kColumnElements;
  static constexpr uint32_t kColumnBytes = kTokens * kColumnRowBytes;  // A column of keys.
  static constexpr uint32_t kTileBytes = kColumns * kColumnBytes;
  static constexpr uint32_t kQueryColumnBytes = kRows * kColumnRowBytes;
  static constexpr uint32_t kQueryBytes = kColumns * kQueryColumnBytes;
  // A left matrix of 64 rows and a pair's 64 keys: one column.
  static constexpr uint32_t kWeightBytes = kQueryColumnBytes;
  static constexpr uint32_t kStateBytes = kConsumers * kRows * 4;  // A number of each row.
  static constexpr uint32_t kBarriers = 2 * kStages + 1;
  static constexpr uint32_t kSharedBytes =
      kQueryBytes + kStages * kTileBytes + kWeightBytes + 2 * kStateBytes + kBarriers * 8;
  static_assert(kConsumers * kTokens == kColumnElements);
  using Args = HopperLaunch;

  static PAGODA_DEVICE void Run(const HopperLaunch& launch) {
    if (ThreadIndex() == 0) {
      for (uint32_t s = 0; s < kStages; ++s) {
        InitBarrier(Full(s), 1);
        InitBarrier(Empty(s), kConsumers * kGroupWarps);
      }
      InitBarrier(Landed(), 1);
      FenceBarriers();
    }
    SyncThreads();
    // Registers: 128 x 56 + 256 x 224 equals 384 x 168, with which the block begins.
    if (WarpIndex() < kGroupWarps) {
      GiveUpRegisters<56>();
      if (WarpIndex() == 0) Produce(launch);
    } else {
      TakeRegisters<224>();
      Consume(launch);
    }
  }

 private:
  static constexpr uint32_t kGroupWarps = 4;
  static constexpr uint32_t kSteps = kMostLatentElements / 16;  // Products along the key.
  // A consumer's half of the value: two sums of 128 elements.
  static constexpr uint32_t kParts = 2;
  static constexpr uint32_t kPartTiles = kMostLatentValues / kConsumers / kParts / 8;
  static constexpr uint32_t kHalfColumns = kValueColumns / kConsumers;
  using Softmax = HopperSoftmax<T, kTokens>;
  using Scores = typename Softmax::Scores;
  using Weights = typename Softmax::Weights;

  static PAGODA_DEVICE uint32_t QueryBase() { return SharedBase(); }
  static PAGODA_DEVICE uint32_t Tile(uint32_t stage) {
    return QueryBase() + kQueryBytes + stage * kTileBytes;
  }
  static PAGODA_DEVICE uint32_t WeightBase() { return Tile(kStages); }
  // The largest scores of a pair of tiles, and the sums of weights.
  static PAGODA_DEVICE uint32_t LargestAt(uint32_t consumer, uint32_t row) {
    return WeightBase() + kWeightBytes + (consumer * kRows + row) * 4;
  }
  static PAGODA_DEVICE uint32_t SumAt(uint32_t consumer, uint32_t row) {
    return LargestAt(consumer, row) + kStateBytes;
  }
  static PAGODA_DEVICE uint32_t Full(uint32_t stage) {
    return LargestAt(0, 0) + 2 * kStateBytes + stage * 8;
  }
  static PAGODA_DEVICE uint32_t Empty(uint32_t stage) { return Full(kStages + stage); }
  static PAGODA_DEVICE uint32_t Landed() { return Full(2 * kStages); }

  // The parities of the stages' next phases.
  struct Phases {
    uint32_t parities = 0;
    PAGODA_DEVICE uint32_t parity(uint32_t stage) const { return parities >> stage & 1u; }
    PAGODA_DEVICE void Next(uint32_t stage) { parities ^= 1u << stage; }
  };

  static PAGODA_DEVICE uint32_t RowsAt(const Unit& unit, uint32_t first_row) {
    return unit.num_rows - first_row < kRows ? unit.num_rows - first_row : kRows;
  }

  // The producer: one warp.

  static PAGODA_DEVICE void Produce(const HopperLaunch& launch) {
    if (LaneIndex() == 0) PrefetchMap(launch.keys);
    const AttentionArgs& args = launch.args;
    const auto num_units = static_cast<uint32_t>(NumUnits(args, launch.kind));
    Phases phases;
    uint32_t landings = 0;
    uint32_t stage = 0;
    uint32_t u = 0;
#pragma unroll 1
    for (uint32_t r = 0; (u = UnitOfRound(r, BlockIndex(), GridBlocks())) < num_units; ++r) {
      const Unit unit = FindUnit(args, launch.kind, u);
#pragma unroll 1
      for (uint32_t row = 0; row < unit.num_rows; row += kRows) {
        const Sight sight = SightOfRows(args, unit, row, RowsAt(unit, row));
        // The slot of the lane's boxes is looked up one tile ahead.
        uint32_t first = FirstTile<kTokens>(launch, sight);
        uint32_t slot = SlotOfBox<kTokens>(launch, unit, sight, first);
#pragma unroll 1
        while (first < sight.end_key) {
          const uint32_t next = NextTile<kTokens>(args, sight, first + kTokens);
          const uint32_t next_slot = SlotOfBox<kTokens>(launch, unit, sight, next);
          const uint32_t unseen = UnseenRows<kTokens>(launch, unit, sight, first);
          WaitFor(Empty(stage), phases.parity(stage) ^ 1);
          phases.Next(stage);
          BringKeys(launch, unit, first, slot, stage, unseen, landings);
          stage = (stage + 1) % kStages;
          first = next;
          slot = next_slot;
        }
        stage = (stage + stage % 2) % kStages;  // The last pair can have one tile.
      }
    }
  }

  // Copies a tile, and clears its unseen rows. Invariant 2.
  static PAGODA_DEVICE void BringKeys(const HopperLaunch& launch, const Unit& unit, uint32_t first,
                                      uint32_t slot, uint32_t stage, uint32_t unseen,
                                      uint32_t& landings) {
    if (!AnyOfWarp(unseen != 0)) {
      BringTile(launch, unit, first, slot, Tile(stage), Full(stage));
      return;
    }
    BringTile(launch, unit, first, slot, Tile(stage), Landed());
    WaitFor(Landed(), landings % 2);
    ++landings;
    ClearRows<kTokens, kColumns>(Tile(stage), unseen);
    FenceAsync();
    SyncWarp();  // All lanes have stored and fenced.
    if (LaneIndex() == 0) Arrive(Full(stage));
  }

  // Starts the copies of a tile; `barrier` counts them. All boxes of a lane are of the same tokens.
  static PAGODA_DEVICE void BringTile(const HopperLaunch& launch, const Unit& unit, uint32_t first,
                                      uint32_t slot, uint32_t tile, uint32_t barrier) {
    if (LaneIndex() == 0) ArriveExpecting(barrier, kTileBytes);
    SyncWarp();
    const uint32_t boxes = kTokens / launch.box_tokens;
    const uint32_t row = LaneIndex() % boxes * launch.box_tokens;
    for (uint32_t column = LaneIndex() / boxes; column < kColumns; column += kWarpThreads / boxes) {
      CopyBox(tile + column * kColumnBytes + row * kColumnRowBytes, launch.keys,
              {.element = column * kColumnElements,
               .token = (first + row) % launch.args.kv.tokens_per_block,
               .head = unit.kv_head,
               .slot = slot},
              barrier);
    }
  }

  // The consumers.

  // Element r of a product's result belongs to row lane / 4 + r / 2 * 8 of the warp's 16 rows.
  struct RowState {
    float sums[kParts][kPartTiles][4];
    SoftmaxState softmax;
  };
  enum class Pair : uint8_t { kBoth, kFirstOnly };

  static PAGODA_DEVICE uint32_t ConsumerIndex() { return WarpIndex() / kGroupWarps - 1; }
  // The first of the warp's 16 rows among the block's 64.
  static PAGODA_DEVICE uint32_t WarpsRow() { return WarpIndex() % kGroupWarps * 16; }
  static PAGODA_DEVICE void SyncConsumers() { SyncSome(1, kConsumerThreads); }

  static PAGODA_DEVICE void Consume(const HopperLaunch& launch) {
    const AttentionArgs& args = launch.args;
    const auto num_units = static_cast<uint32_t>(NumUnits(args, launch.kind));
    Phases phases;
    uint32_t stage = 0;  // The stage of the next pair's first tile.
    uint32_t u = 0;
#pragma unroll 1
    for (uint32_t r = 0; (u = UnitOfRound(r, BlockIndex(), GridBlocks())) < num_units; ++r) {
      const Unit unit = FindUnit(args, launch.kind, u);
#pragma unroll 1
      for (uint32_t row = 0; row < unit.num_rows; row += kRows) {
        Attend(launch, unit, row, SightOfRows(args, unit, row, RowsAt(unit, row)), stage, phases);
      }
    }
  }

  static PAGODA_DEVICE void Attend(const HopperLaunch& launch, const Unit& unit, uint32_t first_row,
                                   const Sight& sight, uint32_t& stage, Phases& phases) {
    const AttentionArgs& args = launch.args;
    SyncConsumers();  // The previous rows have been stored.
    LoadRows<kMostLatentElements, kRows, kConsumerThreads>(args, unit, first_row,
                                                           RowsAt(unit, first_row), QueryBase(),
                                                           ThreadIndex() - kWarpgroupThreads);
    FenceAsync();
    SyncConsumers();
    RowState state;
    Clear(state);
    uint32_t first = FirstTile<kTokens>(launch, sight);
    uint32_t second = 0;
#pragma unroll 1
    while (first < sight.end_key) {
      second = NextTile<kTokens>(args, sight, first + kTokens);
      if (second >= sight.end_key) break;
      AddPair<Pair::kBoth>(args, unit, sight, first_row, first, second, stage, phases, state);
      first = NextTile<kTokens>(args, sight, second + kTokens);
    }
    if (first < sight.end_key) {
      AddPair<Pair::kFirstOnly>(args, unit, sight, first_row, first, second, stage, phases, state);
    }
    Store(args, unit, first_row, RowsAt(unit, first_row), state);
  }

  static PAGODA_DEVICE void Clear(RowState& state) {
#pragma unroll
    for (uint32_t p = 0; p < kParts; ++p) {
#pragma unroll
      for (uint32_t n = 0; n < kPartTiles; ++n) {
#pragma unroll
        for (uint32_t r = 0; r < 4; ++r) state.sums[p][n][r] = 0;
      }
    }
    Softmax::Clear(state.softmax);
  }

  // Both tiles of a pair, or only the first one.
  template <Pair kPair>
  static PAGODA_DEVICE void AddPair(const AttentionArgs& args, const Unit& unit, const Sight& sight,
                                    uint32_t first_row, uint32_t first, uint32_t second,
                                    uint32_t& stage, Phases& phases, RowState& state) {
    const uint32_t own = ConsumerIndex();
    const bool has_tile = kPair == Pair::kBoth || own == 0;
    Scores scores;
    float largest[2] = {NegativeInfinity(), NegativeInfinity()};
    float factor = Softmax::FactorOf(args);
    if (has_tile) {
      const uint32_t key = own == 0 ? first : second;
      const bool plain = Softmax::IsPlain(args, sight, key);
      WaitFor(Full(stage + own), phases.parity(stage + own));
      MultiplyKeys(stage + own, scores);
      WaitForProducts<0>();
      PinRegisters(scores);
      if (!plain) factor = Softmax::Prepare(args, unit, sight, first_row + WarpsRow(), key, scores);
      Softmax::FindLargest(factor, scores, largest);
    }
    ExchangeLargest(largest);
    float factors[2];
    if (has_tile) {
      Softmax::WeighBelow(largest, factor, scores, state.softmax, factors);
      StoreWeights(scores);
    } else {
      Softmax::Rescale(largest, state.softmax, factors);
    }
    // In most tiles no row has a larger score than before.
    if (AnyOfWarp(factors[0] != 1 || factors[1] != 1)) Rescale(factors, state);
    FenceAsync();
    SyncConsumers();  // The weights are there.
    AddValues<kPair>(stage, phases, state);
    stage = (stage + 2) % kStages;
  }

  // O += P V for the consumer's half of the value.
  template <Pair kPair>
  static PAGODA_DEVICE void AddValues(uint32_t stage, Phases& phases, RowState& state) {
    // For the other consumer's tile, too, which this one has not waited for.
    WaitFor(Full(stage), phases.parity(stage));
    if (kPair == Pair::kBoth) WaitFor(Full(stage + 1), phases.parity(stage + 1));
    PinSums(state);
    MultiplyValues(stage, 0, state);
    if constexpr (kPair == Pair::kBoth) {
      MultiplyValues(stage + 1, 1, state);
      WaitForProducts<1>();
      Release(stage, phases);
    }
    WaitForProducts<0>();
    PinSums(state);
    Release(kPair == Pair::kBoth ? stage + 1 : stage, phases);
  }

  // The products of the pair's tile `tile`, which is in `stage`.
  static PAGODA_DEVICE void MultiplyValues(uint32_t stage, uint32_t tile, RowState& state) {
    const Matrix weights = RowsOfColumn(PinNumber(WeightBase() + tile * kTokens * 2));
    const Matrix values = ColumnsOfRows(
        PinNumber(Tile(stage) + ConsumerIndex() * kHalfColumns * kColumnBytes), kColumnBytes);
    FenceProducts();
#pragma unroll
    for (uint32_t k = 0; k < kTokens / 16; ++k) {
#pragma unroll
      for (uint32_t p = 0; p < kParts; ++p) {
        MultiplySharedColumns<T>(state.sums[p], Advance(weights, k * 32),
                                 Advance(values, p * 2 * kColumnBytes + k * 16 * kColumnRowBytes));
      }
    }
    CommitProducts();
  }

  // Starts S = Q K^T.
  static PAGODA_DEVICE void MultiplyKeys(uint32_t stage, Scores& scores) {
    const Matrix queries = RowsOfColumn(PinNumber(QueryBase()));
    const Matrix keys = RowsOfColumn(PinNumber(Tile(stage)));
    PinRegisters(scores);
    FenceProducts();
#pragma unroll
    for (uint32_t step = 0; step < kSteps; ++step) {
      const uint32_t column = step / 4;
      const uint32_t bytes = step % 4 * 32;
      MultiplyShared<T>(scores, Advance(queries, column * kQueryColumnBytes + bytes),
                        Advance(keys, column * kColumnBytes + bytes), step > 0);
    }
    CommitProducts();
  }

  // Makes the largest scores of the lane's rows those of both consumers' keys. The barrier behind
  // the weights comes before the next pair's.
  static PAGODA_DEVICE void ExchangeLargest(float (&largest)[2]) {
    const uint32_t row = WarpsRow() + LaneIndex() / 4;
#pragma unroll
    for (uint32_t e = 0; e < 2; ++e) {
      if (LaneIndex() % 4 == 0) {
        StoreShared(LargestAt(ConsumerIndex(), row + 8 * e), largest[e]);
      }
    }
    SyncConsumers();
#pragma unroll
    for (uint32_t e = 0; e < 2; ++e) {
      largest[e] =
          LargerOf(largest[e], LoadShared<float>(LargestAt(1 - ConsumerIndex(), row + 8 * e)));
    }
  }

  // Stores the weights of the consumer's tile.
  static PAGODA_DEVICE void StoreWeights(const Scores& scores) {
    const uint32_t row = WarpsRow() + LaneIndex() / 4;
#pragma unroll
    for (uint32_t n = 0; n < kTokens / 8; ++n) {
#pragma unroll
      for (uint32_t e = 0; e < 2; ++e) {
        StoreShared(WeightBase() +
                        SwizzledOffset(row + 8 * e, ConsumerIndex() * (kTokens / 8) + n) +
                        LaneIndex() % 4 * 4,
                    PackPair<T>(scores[n][2 * e], scores[n][2 * e + 1]));
      }
    }
  }

  static PAGODA_DEVICE void PinSums(RowState& state) {
#pragma unroll
    for (uint32_t p = 0; p < kParts; ++p) PinRegisters(state.sums[p]);
  }

  // The warp no longer reads the stage.
  static PAGODA_DEVICE void Release(uint32_t stage, Phases& phases) {
    SyncWarp();
    if (LaneIndex() == 0) Arrive(Empty(stage));
    phases.Next(stage);
  }

  static PAGODA_DEVICE void Rescale(const float (&factors)[2], RowState& state) {
#pragma unroll
    for (uint32_t p = 0; p < kParts; ++p) {
#pragma unroll
      for (uint32_t n = 0; n < kPartTiles; ++n) {
#pragma unroll
        for (uint32_t r = 0; r < 4; ++r) state.sums[p][n][r] *= factors[r / 2];
      }
    }
  }

  // Stores the consumer's half of the rows. Those of a whole item pass through the place of the
  // queries, so that a lane stores 16 bytes at a time.
  static PAGODA_DEVICE void Store(const AttentionArgs& args, const Unit& unit, uint32_t first_row,
                                  uint32_t num_rows, const RowState& state) {
    const uint32_t lane = LaneIndex();
    const bool whole = unit.item.partial == kWholeItem;
#pragma unroll
    for (uint32_t e = 0; e < 2; ++e) {
      float sum = state.softmax.weights[e];
      sum += ShuffleXor(sum, 1);
      sum += ShuffleXor(sum, 2);
      if (lane % 4 == 0) StoreShared(SumAt(ConsumerIndex(), WarpsRow() + lane / 4 + 8 * e), sum);
    }
    SyncConsumers();  // The sums are there. No product reads the queries any more.
#pragma unroll
    for (uint32_t e = 0; e < 2; ++e) {
      const uint32_t row_of_block = WarpsRow() + lane / 4 + 8 * e;
      const float sum =
          LoadShared<float>(SumAt(0, row_of_block)) + LoadShared<float>(SumAt(1, row_of_block));
      const uint32_t row = first_row + row_of_block;
      if (row_of_block >= num_rows) continue;
      const RowEnd end = EndRow(args, state.softmax.largest[e], sum,
                                unit.kv_head * args.group + row % args.group, whole);
      if (ConsumerIndex() == 0 && lane % 4 == 0) StoreLogSum(args, unit, row, end.log_sum);
#pragma unroll
      for (uint32_t p = 0; p < kParts; ++p) {
#pragma unroll
        for (uint32_t n = 0; n < kPartTiles; ++n) {
          const uint32_t chunk = (ConsumerIndex() * kParts + p) * kPartTiles + n;
          if (chunk * 8 >= args.value_dim) continue;  // A multiple of 8.
          const float first = state.sums[p][n][2 * e] * end.factor;
          const float second = state.sums[p][n][2 * e + 1] * end.factor;
          if (whole) {
            StoreShared(ResultAt(row_of_block, chunk) + lane % 4 * 4, PackPair<T>(first, second));
          } else {
            StorePair<T>(args, unit, row, chunk * 8 + lane % 4 * 2, first, second);
          }
        }
      }
    }
    SyncWarp();
    if (!whole) return;
    constexpr uint32_t kHalfChunks = kParts * kPartTiles;
    StoreRows<kHalfChunks>(args, unit, first_row + WarpsRow(), first_row + num_rows,
                           ConsumerIndex() * kHalfChunks, [](uint32_t row_of_warp, uint32_t chunk) {
                             return ResultAt(WarpsRow() + row_of_warp, chunk);
                           });
  }

  static PAGODA_DEVICE uint32_t ResultAt(uint32_t row, uint32_t chunk) {
    return QueryBase() + chunk / 8 * kQueryColumnBytes + SwizzledOffset(row, chunk % 8);
  }
};

}  // namespace pagoda::kernels::cuda

#endif  // PAGODA_KERNELS_CUDA_HOPPER_ATTENTION_LATENT_HOPPER_H_
