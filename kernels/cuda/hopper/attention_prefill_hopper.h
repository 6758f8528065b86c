// Attention of many rows on Hopper's tensor cores: whole prefills and long chunks, over pools of 16
// bits.
//
// FlashAttention-3's method (Shah et al., 2024) with three warpgroups. The first one gives up most
// of its registers and brings everything to shared memory: one of its warps K and another one V, by
// TMA, into rings whose stages have a barrier "full" and a barrier "empty"; the other two the next
// unit and its queries. Each of the other two warpgroups has 64 rows of the unit (row = token *
// group + head) against all keys: S = Q K^T from shared memory, O = P V with the weights in
// registers. A warpgroup starts S of the next tile and O of this tile together, and computes the
// weights of one while the other is multiplied. The warpgroups take turns in starting products, so
// that one computes weights while the tensor cores work for the other.
//
// Blocks are persistent, one per multiprocessor. Units come by descending cost, and a block takes
// one of each round of the grid (UnitOfRound). That balances the blocks as well as a counter that
// they would share (attention_walk_test.cc), and needs no memory.
//
// Why tensor maps, and not plain bulk copies of a block's contiguous bytes: products read swizzled
// matrices, and only boxes arrive swizzled. Boxes also follow every layout of KvLayer, fill a
// head_dim below 64 or 128 with zeros, and read a slot that does not exist as zeros. Each call
// encodes the maps on the host, in less than a microsecond, and passes them as parameters of the
// kernel. A graph keeps them by value, so a caller has nothing to keep.
//
// Invariants
// 1. Producers and consumers walk the same tiles in the same order: from FirstTile by NextTile, for
// the same Sight. Tile n of the block, counted over all its units, has stage n % kStages in both
// rings, in the phase of parity n / kStages % 2.
// 2. A tile has kTokens keys from a position that is a multiple of box_tokens. box_tokens divides
// tokens_per_block and kTokens, so each box of a tile lies in one block. A box of which no row sees
// a key is read from slot num_slots, which gives zeros; its table entry is not read.
// 3. When "full" is reached, a row of V that no row of the tile sees is zero, because a weight of 0
// times NaN would be NaN. If a box is seen in part, the producer itself waits for V and clears the
// rest. Such keys of K give NaN in S, where they are masked.
// 4. A consumer arrives at "empty" after it has waited for its products: nothing reads the stage
// any more. It arrives at "empty" of the queries after it has stored the rows, which pass through
// the queries' place.
// 5. Work n of the block is kRows rows of a unit. It has stage n % kWorkStages. Work without rows
// ends the block. Each thread that read or wrote a work's place arrives at its barriers itself,
// once a unit: so compute-sanitizer sees that the accesses are in order.
// 6. A consumer starts products only in its turn, from TakeTurn to GiveTurn. Both consumers have
// the same tiles, so both have the same number of turns.
//
// Example: one tile of 128 keys, with head_dim 128, blocks of 16 tokens, group 4. The block's rows
// are 32 query tokens at positions 968 to 999 of a context of 1,000. FirstTile is 0; tile 7 has
// keys 896 to 1,023. Its boxes are 8 of tokens x 2 columns of 64 elements, for lanes 0 to 15 of a
// producer. Box 6 (keys 992 to 1,007) is seen in part. Box 7 (from 1,008) is not seen, and is
// zeros. K arrives at [column][128 rows][128 bytes], 32 KiB, and "full" of K counts these bytes. V
// arrives in the same form at "landed". The lanes find keys 1,000 to 1,007 unseen, clear their 8 x
// 2 rows of 128 bytes and fence; then lane 0 arrives at "full" of V. Warpgroup 0 has rows 0 to 63
// (positions 968 to 983), warpgroup 1 the others. S is 8 products of m64n128k16, each 32 bytes
// further in the rows of Q and K, with 64 fp32 per lane. The tile is not seen by all rows, so each
// lane masks its two rows' 64 scores. The weights are packed into 8 fragments, and O gets 8
// products of m64n128k16, each 16 rows (2,048 bytes) further in V.
#ifndef PAGODA_KERNELS_CUDA_HOPPER_ATTENTION_PREFILL_HOPPER_H_
#define PAGODA_KERNELS_CUDA_HOPPER_ATTENTION_PREFILL_HOPPER_H_

#include <cstdint>

#include "kernels/cuda/attention/attention_args.h"
#include "kernels/cuda/attention/attention_tile.h"
#include "kernels/cuda/attention/attention_unit.h"
#include "kernels/cuda/attention/attention_walk.h"
#include "kernels/cuda/hopper/attention_hopper.h"
#include "kernels/cuda/hopper/attention_softmax_hopper.h"
#include "kernels/cuda/hopper/attention_tile_hopper.h"
#include "kernels/cuda/hopper/attention_work_hopper.h"
#include "kernels/cuda/hopper/hopper.h"

namespace pagoda::kernels::cuda {

// T: Half or BFloat16, as in the pool. kDim: 64, 128 or 256, at least head_dim.
template <class T, uint32_t kDim>
class HopperPrefillKernel {
 public:
  static constexpr uint32_t kConsumers = 2;  // Warpgroups.
  static constexpr uint32_t kThreads = (1 + kConsumers) * kWarpgroupThreads;
  static constexpr uint32_t kMinBlocks = 1;
  // Keys at a time: the most that leave enough registers for the sums.
  static constexpr uint32_t kTokens = kDim > 128 ? 64 : 128;
  static constexpr uint32_t kStages = 2;
  static constexpr uint32_t kGroupRows = 64;
  static constexpr uint32_t kRows = kConsumers * kGroupRows;
  static constexpr uint32_t kColumns = kDim / kColumnElements;
  static constexpr uint32_t kTileColumnBytes = kTokens * kColumnRowBytes;
  static constexpr uint32_t kTileBytes = kColumns * kTileColumnBytes;
  static constexpr uint32_t kQueryColumnBytes = kGroupRows * kColumnRowBytes;
  static constexpr uint32_t kQueryBytes = kColumns * kQueryColumnBytes;  // Per warpgroup.
  // The next unit's queries are loaded while this unit is computed, if there is place for both.
  static constexpr uint32_t kWorkStages = kDim > 128 ? 1 : 2;
  static constexpr uint32_t kBarriers = 4 * kStages + 1 + 2 * kWorkStages;
  static constexpr uint32_t kSharedBytes = kWorkStages * (kConsumers * kQueryBytes + kWorkBytes) +
                                           2 * kStages * kTileBytes + kBarriers * 8;
  using Args = HopperLaunch;

  static PAGODA_DEVICE void Run(const HopperLaunch& launch) {
    if (ThreadIndex() == 0) {
      for (uint32_t s = 0; s < kStages; ++s) {
        InitBarrier(Full(kKeys, s), 1);
        InitBarrier(Full(kValues, s), 1);
        InitBarrier(Empty(kKeys, s), kConsumerWarps);
        InitBarrier(Empty(kValues, s), kConsumerWarps);
      }
      InitBarrier(Landed(), 1);
      for (uint32_t s = 0; s < kWorkStages; ++s) {
        InitBarrier(FullWork(s), kLoadingWarps * kWarpThreads);
        InitBarrier(EmptyWork(s), kConsumerWarps * kWarpThreads);
      }
      FenceBarriers();
    }
    SyncThreads();
    // Registers: 128 x 56 + 256 x 224 equals 384 x 168, with which the block begins.
    if (WarpIndex() < kGroupWarps) {
      GiveUpRegisters<56>();
      if (WarpIndex() == 0) {
        ProduceKeys(launch);
      } else if (WarpIndex() == 1) {
        ProduceValues(launch);
      } else {
        ProduceWork(launch);
      }
    } else {
      TakeRegisters<224>();
      Consume(launch);
    }
  }

 private:
  static constexpr uint32_t kGroupWarps = 4;
  static constexpr uint32_t kConsumerWarps = kConsumers * kGroupWarps;
  static constexpr uint32_t kLoadingWarps = kGroupWarps - 2;
  // The sums have this many elements at a time: 128, or all of 64.
  static constexpr uint32_t kParts = kDim > 128 ? kDim / 128 : 1;
  static constexpr uint32_t kPartTiles = kDim / kParts / 8;
  static constexpr uint32_t kPartColumns = kColumns / kParts;
  using Softmax = HopperSoftmax<T, kTokens>;
  using Scores = typename Softmax::Scores;
  using Weights = typename Softmax::Weights;

  enum Ring : uint32_t { kKeys, kValues };

  static PAGODA_DEVICE uint32_t QueryBase(uint32_t stage, uint32_t consumer) {
    return SharedBase() + (stage * kConsumers + consumer) * kQueryBytes;
  }
  static PAGODA_DEVICE uint32_t Tile(Ring ring, uint32_t stage) {
    return SharedBase() + kWorkStages * kConsumers * kQueryBytes +
           (ring * kStages + stage) * kTileBytes;
  }
  static PAGODA_DEVICE uint32_t WorkAt(uint32_t stage) {
    return Tile(kKeys, 2 * kStages) + stage * kWorkBytes;
  }
  static PAGODA_DEVICE uint32_t Barrier(uint32_t index) { return WorkAt(kWorkStages) + index * 8; }
  static PAGODA_DEVICE uint32_t Full(Ring ring, uint32_t stage) {
    return Barrier(ring * kStages + stage);
  }
  static PAGODA_DEVICE uint32_t Empty(Ring ring, uint32_t stage) {
    return Barrier((2 + ring) * kStages + stage);
  }
  static PAGODA_DEVICE uint32_t Landed() { return Barrier(4 * kStages); }
  static PAGODA_DEVICE uint32_t FullWork(uint32_t stage) {
    return Barrier(4 * kStages + 1 + stage);
  }
  static PAGODA_DEVICE uint32_t EmptyWork(uint32_t stage) {
    return Barrier(4 * kStages + 1 + kWorkStages + stage);
  }

  // A stage of a ring of kPlaces, and the parity of its phase. Invariants 1 and 5.
  template <uint32_t kPlaces>
  struct PlaceOf {
    uint32_t index = 0;
    PAGODA_DEVICE uint32_t stage() const { return index % kPlaces; }
    PAGODA_DEVICE uint32_t parity() const { return index / kPlaces % 2; }
    PAGODA_DEVICE void Next() { ++index; }
  };
  using Place = PlaceOf<kStages>;
  using WorkPlace = PlaceOf<kWorkStages>;

  static PAGODA_DEVICE uint32_t RowsAt(uint32_t num_rows, uint32_t first_row) {
    return num_rows - first_row < kRows ? num_rows - first_row : kRows;
  }

  // The producers of K and of V: a warp each. A lane copies at most one box of a tile; its slot is
  // looked up one tile ahead.
  static_assert(kTokens / 8 * kColumns <= kWarpThreads);

  static PAGODA_DEVICE void ProduceKeys(const HopperLaunch& launch) {
    if (LaneIndex() == 0) PrefetchMap(launch.keys);
    Place place;
    WalkTiles(launch, [&](const Unit& unit, const Sight&, uint32_t first, uint32_t slot) {
      WaitFor(Empty(kKeys, place.stage()), place.parity() ^ 1);
      BringTile(launch, launch.keys, unit, first, slot, Tile(kKeys, place.stage()),
                Full(kKeys, place.stage()));
      place.Next();
    });
  }

  static PAGODA_DEVICE void ProduceValues(const HopperLaunch& launch) {
    if (LaneIndex() == 0) PrefetchMap(launch.values);
    Place place;
    uint32_t landings = 0;
    WalkTiles(launch, [&](const Unit& unit, const Sight& sight, uint32_t first, uint32_t slot) {
      WaitFor(Empty(kValues, place.stage()), place.parity() ^ 1);
      BringValues(launch, unit, sight, first, slot, place.stage(), landings);
      place.Next();
    });
  }

  // Calls visit(unit, sight, first key, the slot of the lane's box) for all tiles of the block.
  template <class Visit>
  static PAGODA_DEVICE void WalkTiles(const HopperLaunch& launch, const Visit& visit) {
    const AttentionArgs& args = launch.args;
    const auto num_units = static_cast<uint32_t>(NumUnits(args, launch.kind));
    uint32_t u = 0;
#pragma unroll 1
    for (uint32_t round = 0; (u = UnitOfRound(round, BlockIndex(), GridBlocks())) < num_units;
         ++round) {
      const Unit unit = FindUnit(args, launch.kind, u);
#pragma unroll 1
      for (uint32_t row = 0; row < unit.num_rows; row += kRows) {
        const Sight sight = SightOfRows(args, unit, row, RowsAt(unit.num_rows, row));
        uint32_t first = FirstTile<kTokens>(launch, sight);
        uint32_t slot = SlotOfBox<kTokens>(launch, unit, sight, first);
#pragma unroll 1
        while (first < sight.end_key) {
          const uint32_t next = NextTile<kTokens>(args, sight, first + kTokens);
          const uint32_t next_slot = SlotOfBox<kTokens>(launch, unit, sight, next);
          visit(unit, sight, first, slot);
          first = next;
          slot = next_slot;
        }
      }
    }
  }

  // Starts the copies of a tile, one box per lane; `barrier` counts them.
  static PAGODA_DEVICE void BringTile(const HopperLaunch& launch, const TensorMap& map,
                                      const Unit& unit, uint32_t first, uint32_t slot,
                                      uint32_t tile, uint32_t barrier) {
    if (LaneIndex() == 0) ArriveExpecting(barrier, kTileBytes);
    SyncWarp();
    const uint32_t boxes = kTokens / launch.box_tokens;
    if (LaneIndex() >= boxes * kColumns) return;
    const uint32_t row = LaneIndex() % boxes * launch.box_tokens;
    const uint32_t column = LaneIndex() / boxes;
    CopyBox(tile + column * kTileColumnBytes + row * kColumnRowBytes, map,
            {.element = column * kColumnElements,
             .token = (first + row) % launch.args.kv.tokens_per_block,
             .head = unit.kv_head,
             .slot = slot},
            barrier);
  }

  // Copies V, with zeros for keys that no row sees. Invariant 3.
  static PAGODA_DEVICE void BringValues(const HopperLaunch& launch, const Unit& unit,
                                        const Sight& sight, uint32_t first, uint32_t slot,
                                        uint32_t stage, uint32_t& landings) {
    const uint32_t tile = Tile(kValues, stage);
    const uint32_t unseen = UnseenRows<kTokens>(launch, unit, sight, first);
    if (!AnyOfWarp(unseen != 0)) {
      BringTile(launch, launch.values, unit, first, slot, tile, Full(kValues, stage));
      return;
    }
    BringTile(launch, launch.values, unit, first, slot, tile, Landed());
    WaitFor(Landed(), landings % 2);
    ++landings;
    ClearRows<kTokens, kColumns>(tile, unseen);
    FenceAsync();
    SyncWarp();  // All lanes have stored and fenced.
    if (LaneIndex() == 0) Arrive(Full(kValues, stage));
  }

  // The producers of work: the other warps of their warpgroup.

  static PAGODA_DEVICE void ProduceWork(const HopperLaunch& launch) {
    const AttentionArgs& args = launch.args;
    const auto num_units = static_cast<uint32_t>(NumUnits(args, launch.kind));
    WorkPlace place;
    uint32_t u = 0;
#pragma unroll 1
    for (uint32_t round = 0; (u = UnitOfRound(round, BlockIndex(), GridBlocks())) < num_units;
         ++round) {
      const Unit unit = FindUnit(args, launch.kind, u);
#pragma unroll 1
      for (uint32_t row = 0; row < unit.num_rows; row += kRows) {
        WaitFor(EmptyWork(place.stage()), place.parity() ^ 1);
        LoadRows<kDim, kRows, kLoadingWarps * kWarpThreads>(
            args, unit, row, RowsAt(unit.num_rows, row), QueryBase(place.stage(), 0),
            ThreadIndex() - (kGroupWarps - kLoadingWarps) * kWarpThreads);
        FinishWork(unit, row, place);
      }
    }
    WaitFor(EmptyWork(place.stage()), place.parity() ^ 1);
    FinishWork({}, 0, place);
  }

  static PAGODA_DEVICE void FinishWork(const Unit& unit, uint32_t row, WorkPlace& place) {
    if (WarpIndex() == 2 && LaneIndex() == 0) StoreWork(unit, row, WorkAt(place.stage()));
    FenceAsync();  // Products read the queries.
    SyncWarp();
    Arrive(FullWork(place.stage()));
    place.Next();
  }

  // The consumers.

  // Element r of a product's result belongs to row lane / 4 + r / 2 * 8 of the warp's 16 rows.
  struct RowState {
    float sums[kParts][kPartTiles][4];
    SoftmaxState softmax;
  };

  static PAGODA_DEVICE uint32_t ConsumerIndex() { return WarpIndex() / kGroupWarps - 1; }
  // The unit's row of the first of the warp's 16 rows.
  static PAGODA_DEVICE uint32_t WarpsRow(uint32_t first_row) {
    return first_row + (WarpIndex() - kGroupWarps) * 16;
  }
  static PAGODA_DEVICE void SyncGroup() { SyncSome(1 + ConsumerIndex(), kWarpgroupThreads); }

  // Turns. Invariant 6.
  static constexpr uint32_t kTurnBarrier = 1 + kConsumers;
  static PAGODA_DEVICE void TakeTurn() {
    SyncSome(kTurnBarrier + ConsumerIndex(), kConsumers * kWarpgroupThreads);
  }
  static PAGODA_DEVICE void GiveTurn() {
    ArriveSome(kTurnBarrier + 1 - ConsumerIndex(), kConsumers * kWarpgroupThreads);
  }

  static PAGODA_DEVICE void Consume(const HopperLaunch& launch) {
    Place place;
    WorkPlace work_place;
    // The first turn is the first consumer's, and so is the last one, which it takes at the end.
    if (ConsumerIndex() == 1) GiveTurn();
#pragma unroll 1
    for (;;) {
      WaitFor(FullWork(work_place.stage()), work_place.parity());
      const Work work = LoadWork(WorkAt(work_place.stage()));
      if (work.num_rows == 0) break;
      Attend(launch, work, work_place.stage(), place);
      SyncWarp();
      Arrive(EmptyWork(work_place.stage()));
      work_place.Next();
    }
    if (ConsumerIndex() == 0) TakeTurn();
  }

  static PAGODA_DEVICE void Attend(const HopperLaunch& launch, const Work& work,
                                   uint32_t work_stage, Place& place) {
    const AttentionArgs& args = launch.args;
    const Unit unit = UnitOf(work);
    const uint32_t num_rows = RowsAt(work.num_rows, work.first_row);
    const Sight sight = SightOfRows(args, unit, work.first_row, num_rows);
    const uint32_t row = WarpsRow(work.first_row);
    const uint32_t queries = QueryBase(work_stage, ConsumerIndex());

    RowState state;
    Clear(state);
    uint32_t first = FirstTile<kTokens>(launch, sight);
    if (first < sight.end_key) {
      Scores scores;
      Weights weights;
      float factors[2];
      const float plain_factor = Softmax::FactorOf(args);
      bool plain = Softmax::IsPlain(args, sight, first);
      WaitFor(Full(kKeys, place.stage()), place.parity());
      MultiplyKeys(queries, place.stage(), scores);
      WaitForProducts<0>();
      PinRegisters(scores);
      Release(kKeys, place.stage());
      Softmax::Weigh(plain ? plain_factor : Softmax::Prepare(args, unit, sight, row, first, scores),
                     scores, state.softmax, factors);
      Softmax::Pack(scores, weights);
#pragma unroll 1
      for (;;) {
        first = NextTile<kTokens>(args, sight, first + kTokens);
        if (first >= sight.end_key) break;
        // S of this tile and O of the previous one, together.
        Place next = place;
        next.Next();
        WaitFor(Full(kKeys, next.stage()), next.parity());
        TakeTurn();
        MultiplyKeys(queries, next.stage(), scores);
        WaitFor(Full(kValues, place.stage()), place.parity());
        AddValues(place.stage(), weights, state);
        GiveTurn();
        plain = Softmax::IsPlain(args, sight, first);
        WaitForProducts<1>();
        PinRegisters(scores);
        Release(kKeys, next.stage());
        Softmax::Weigh(
            plain ? plain_factor : Softmax::Prepare(args, unit, sight, row, first, scores), scores,
            state.softmax, factors);
        // The softmax of both rows runs in parallel to the products.
        ComputeFirst(state.softmax.weights);
        WaitForProducts<0>();
        PinSums(state);
        PinRegisters(weights);  // The products read them until now.
        Release(kValues, place.stage());
        // In most tiles no row has a larger score than before.
        if (AnyOfWarp(factors[0] != 1 || factors[1] != 1)) Rescale(factors, state);
        Softmax::Pack(scores, weights);
        place = next;
      }
      WaitFor(Full(kValues, place.stage()), place.parity());
      AddValues(place.stage(), weights, state);
      WaitForProducts<0>();
      PinSums(state);
      PinRegisters(weights);  // The products read them until now.
      Release(kValues, place.stage());
      place.Next();
    }
    Store(args, unit, work.first_row, num_rows, queries, state);
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

  // Starts S = Q K^T.
  static PAGODA_DEVICE void MultiplyKeys(uint32_t query_base, uint32_t stage, Scores& scores) {
    const Matrix queries = RowsOfColumn(query_base);
    const Matrix keys = RowsOfColumn(Tile(kKeys, stage));
    PinRegisters(scores);
    FenceProducts();
#pragma unroll
    for (uint32_t step = 0; step < kDim / 16; ++step) {
      const uint32_t column = step / 4;
      const uint32_t bytes = step % 4 * 32;
      MultiplyShared<T>(scores, Advance(queries, column * kQueryColumnBytes + bytes),
                        Advance(keys, column * kTileColumnBytes + bytes), step > 0);
    }
    CommitProducts();
  }

  // Starts O += P V.
  static PAGODA_DEVICE void AddValues(uint32_t stage, const Weights& weights, RowState& state) {
    const Matrix values = ColumnsOfRows(Tile(kValues, stage), kTileColumnBytes);
    PinSums(state);
    FenceProducts();
#pragma unroll
    for (uint32_t k = 0; k < kTokens / 16; ++k) {
#pragma unroll
      for (uint32_t p = 0; p < kParts; ++p) {
        MultiplyRegisters<T>(
            state.sums[p], weights[k],
            Advance(values, p * kPartColumns * kTileColumnBytes + k * 16 * kColumnRowBytes));
      }
    }
    CommitProducts();
  }

  static PAGODA_DEVICE void PinSums(RowState& state) {
#pragma unroll
    for (uint32_t p = 0; p < kParts; ++p) PinRegisters(state.sums[p]);
  }

  // The warp no longer reads the stage.
  static PAGODA_DEVICE void Release(Ring ring, uint32_t stage) {
    SyncWarp();
    if (LaneIndex() == 0) Arrive(Empty(ring, stage));
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

  // Stores the rows. Those of a whole item pass through the place of the queries, so that a lane
  // stores 16 bytes at a time.
  static PAGODA_DEVICE void Store(const AttentionArgs& args, const Unit& unit, uint32_t first_row,
                                  uint32_t num_rows, uint32_t queries, const RowState& state) {
    const uint32_t lane = LaneIndex();
    const bool whole = unit.item.partial == kWholeItem;
    SyncGroup();  // No warp of the group multiplies the queries any more.
#pragma unroll
    for (uint32_t e = 0; e < 2; ++e) {
      float sum = state.softmax.weights[e];
      sum += ShuffleXor(sum, 1);
      sum += ShuffleXor(sum, 2);
      const uint32_t row = WarpsRow(first_row) + lane / 4 + 8 * e;
      if (row >= first_row + num_rows) continue;
      const RowEnd end = EndRow(args, state.softmax.largest[e], sum,
                                unit.kv_head * args.group + row % args.group, whole);
      if (lane % 4 == 0) StoreLogSum(args, unit, row, end.log_sum);
#pragma unroll
      for (uint32_t p = 0; p < kParts; ++p) {
#pragma unroll
        for (uint32_t n = 0; n < kPartTiles; ++n) {
          const uint32_t chunk = p * kPartTiles + n;
          if (chunk * 8 >= args.value_dim) continue;  // A multiple of 8.
          const float first = state.sums[p][n][2 * e] * end.factor;
          const float second = state.sums[p][n][2 * e + 1] * end.factor;
          if (whole) {
            StoreShared(ResultAt(queries, lane / 4 + 8 * e, chunk) + lane % 4 * 4,
                        PackPair<T>(first, second));
          } else {
            StorePair<T>(args, unit, row, chunk * 8 + lane % 4 * 2, first, second);
          }
        }
      }
    }
    SyncWarp();
    if (!whole) return;
    StoreRows<kDim / 8>(
        args, unit, WarpsRow(first_row), first_row + num_rows, 0,
        [queries](uint32_t row, uint32_t chunk) { return ResultAt(queries, row, chunk); });
  }

  // The place of a chunk of 8 elements of the warp's row 0 to 15.
  static PAGODA_DEVICE uint32_t ResultAt(uint32_t queries, uint32_t row, uint32_t chunk) {
    return queries + chunk / 8 * kQueryColumnBytes +
           SwizzledOffset(WarpIndex() % kGroupWarps * 16 + row, chunk % 8);
  }
};

}  // namespace pagoda::kernels::cuda

#endif  // PAGODA_KERNELS_CUDA_HOPPER_ATTENTION_PREFILL_HOPPER_H_
