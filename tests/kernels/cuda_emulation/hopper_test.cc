// The emulation of Hopper: the results of its instructions, and the problems that it finds if a
// wait, a fence or a swizzle is wrong. The kernel here is the smallest one that uses all of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "kernels/cuda/hopper/hopper.h"
#include "kernels/numeric.h"
#include "tests/kernels/cuda/attention_case.h"
#include "tests/kernels/cuda_emulation/emulator.h"

namespace pagoda::kernels::cuda {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr uint32_t kTokens = 64;
constexpr uint32_t kDim = 64;
constexpr uint32_t kBoxTokens = 16;

// A pool of one head: kTokens tokens in blocks of kBoxTokens, in reverse slots. Function Element
// gives element i of token t.
float Element(uint32_t token, uint32_t i) {
  return static_cast<float>((token * 7 + i * 3) % 13) - 6;
}

struct Pool {
  std::vector<BFloat16> elements = std::vector<BFloat16>(kTokens * kDim);
  TensorMap map;

  Pool() {
    for (uint32_t t = 0; t < kTokens; ++t) {
      const uint32_t row = SlotOf(t) * kBoxTokens + t % kBoxTokens;
      for (uint32_t i = 0; i < kDim; ++i) {
        elements[row * kDim + i] = FromFloat<BFloat16>(Element(t, i));
      }
    }
    EXPECT_TRUE(EncodeTensorMap({.base = reinterpret_cast<const std::byte*>(elements.data()),
                                 .elements = kDim,
                                 .tokens = kBoxTokens,
                                 .heads = 1,
                                 .slots = kTokens / kBoxTokens,
                                 .token_stride_bytes = kDim * 2,
                                 .head_stride_bytes = kDim * 2 * kBoxTokens,
                                 .slot_stride_bytes = kDim * 2 * kBoxTokens,
                                 .box_tokens = kBoxTokens},
                                &map)
                    .ok());
  }
  static uint32_t SlotOf(uint32_t token) { return kTokens / kBoxTokens - 1 - token / kBoxTokens; }
};

float Query(uint32_t row, uint32_t i) { return static_cast<float>((row * 5 + i) % 9) - 4; }
float Weight(uint32_t row, uint32_t token) { return static_cast<float>((row + token) % 5) - 2; }

// A mistake of the kernel.
enum class Fault {
  kNone,
  kNoFenceOfStores,
  kNoWaitForBox,
  kNoWaitForProducts,
  kStoresUnderProducts,
  kNoFenceOfProducts,
  kWeightsChangeUnderProducts,
  kWrongSwizzle,
  kWrongStride,
  kOneWarpElsewhere,
  kTooManyBytes,
  kMisplacedBox,
  kNoFenceOfBarriers,
  kEmptyTooEarly,
};

// Shared memory: Q [64][64] swizzled, K and V (the same boxes) [64][64], a barrier.
constexpr uint32_t kKeysAt = 8192;
constexpr uint32_t kBarrierAt = 16384;
constexpr uint32_t kSharedBytes = kBarrierAt + 8;

struct Result {
  float scores[64][64];  // Q K^T
  float values[64][64];  // weights V
};

void BringKeys(const Pool& pool, uint32_t keys, uint32_t barrier, Fault fault) {
  ArriveExpecting(barrier, kTokens * kDim * 2 + (fault == Fault::kTooManyBytes ? 16 : 0));
  for (uint32_t t = 0; t < kTokens; t += kBoxTokens) {
    const uint32_t shift = fault == Fault::kMisplacedBox ? 128 : 0;
    CopyBox(keys + t * kColumnRowBytes - shift, pool.map,
            {.element = 0, .token = 0, .head = 0, .slot = Pool::SlotOf(t)}, barrier);
  }
}

void StoreQueries(uint32_t queries, float factor) {
  for (uint32_t c = ThreadIndex(); c < 64 * 8; c += kWarpgroupThreads) {
    Vector16 vector;
    for (uint32_t w = 0; w < 4; ++w) {
      const uint32_t i = c % 8 * 8 + 2 * w;
      vector.words[w] = PackPair<BFloat16>(factor * Query(c / 8, i), factor * Query(c / 8, i + 1));
    }
    StoreShared(queries + SwizzledOffset(c / 8, c % 8), vector);
  }
}

// The first row and the first column of this lane's sums.
uint32_t RowOfLane() { return WarpIndex() * 16 + LaneIndex() / 4; }
uint32_t ColumnOfLane() { return LaneIndex() % 4 * 2; }

// Starts S = Q K^T.
void StartScores(uint32_t queries, uint32_t keys, Fault fault, float (&scores)[8][4]) {
  Matrix left = RowsOfColumn(queries);
  Matrix right = RowsOfColumn(keys);
  // 64 bytes instead of 128; four rows' distance instead of eight.
  if (fault == Fault::kWrongSwizzle) left ^= uint64_t{3} << 62;
  if (fault == Fault::kWrongStride) right = DescribeMatrix(keys, 16, 512);
  if (fault == Fault::kOneWarpElsewhere && WarpIndex() == 3) right = Advance(right, 1024);
  if (fault != Fault::kNoFenceOfProducts) FenceProducts();
  for (uint32_t step = 0; step < kDim / 16; ++step) {
    MultiplyShared<BFloat16>(scores, Advance(left, step * 32), Advance(right, step * 32), step > 0);
  }
  CommitProducts();
}

using Weights = uint32_t[kTokens / 16][4];

void SetWeights(Weights& weights) {
  const uint32_t row = RowOfLane();
  for (uint32_t k = 0; k < kTokens / 16; ++k) {
    for (uint32_t i = 0; i < 4; ++i) {
      const uint32_t token = 16 * k + ColumnOfLane() + i / 2 * 8;
      weights[k][i] =
          PackPair<BFloat16>(Weight(row + i % 2 * 8, token), Weight(row + i % 2 * 8, token + 1));
    }
  }
}

// Starts O = W K.
void StartValues(uint32_t keys, const Weights& weights, float (&values)[8][4]) {
  FenceProducts();
  for (uint32_t k = 0; k < kTokens / 16; ++k) {
    MultiplyRegisters<BFloat16>(
        values, weights[k],
        Advance(ColumnsOfRows(keys, kTokens * kColumnRowBytes), k * 16 * kColumnRowBytes));
  }
  CommitProducts();
}

void TakeSums(const float (&sums)[8][4], float (&result)[64][64]) {
  for (uint32_t n = 0; n < 8; ++n) {
    for (uint32_t r = 0; r < 4; ++r) {
      result[RowOfLane() + r / 2 * 8][8 * n + ColumnOfLane() + r % 2] = sums[n][r];
    }
  }
}

// A warpgroup. Thread 0 brings K by boxes; all threads store Q. S = Q K^T, then O = W K. The sums
// and the weights live until the end, because products with a fault may still use them.
void Kernel(const Pool& pool, Fault fault, Result& result) {
  const uint32_t queries = SharedBase();
  const uint32_t keys = SharedBase() + kKeysAt;
  const uint32_t barrier = SharedBase() + kBarrierAt;
  if (ThreadIndex() == 0) {
    InitBarrier(barrier, 1);
    if (fault != Fault::kNoFenceOfBarriers) FenceBarriers();
  }
  SyncThreads();
  if (ThreadIndex() == 0) BringKeys(pool, keys, barrier, fault);
  StoreQueries(queries, 1);
  if (fault != Fault::kNoFenceOfStores) FenceAsync();
  SyncThreads();
  if (fault != Fault::kNoWaitForBox) WaitFor(barrier, 0);

  float scores[8][4] = {};
  StartScores(queries, keys, fault, scores);
  if (fault == Fault::kStoresUnderProducts) StoreQueries(queries, 2);
  if (fault != Fault::kNoWaitForProducts) WaitForProducts<0>();
  TakeSums(scores, result.scores);

  float values[8][4] = {};
  Weights weights;
  SetWeights(weights);
  StartValues(keys, weights, values);
  if (fault == Fault::kWeightsChangeUnderProducts) weights[1][2] = 0;
  if (fault == Fault::kEmptyTooEarly) {
    SyncThreads();
    if (ThreadIndex() == 0) BringKeys(pool, keys, barrier, fault);
    WaitFor(barrier, 1);
  }
  WaitForProducts<0>();
  TakeSums(values, result.values);
}

// The problems of a launch. Empty, or "wrong" if the results are arithmetically wrong.
std::string RunWith(Fault fault) {
  const Pool pool;
  Result result;
  emulation::Launch(1, kWarpgroupThreads, kSharedBytes, [&] { Kernel(pool, fault, result); });
  std::string all;
  for (const std::string& problem : emulation::TakeProblems()) all += problem + "\n";
  for (uint32_t row = 0; row < 64; ++row) {
    for (uint32_t n = 0; n < 64; ++n) {
      float score = 0;
      float value = 0;
      for (uint32_t i = 0; i < kDim; ++i) score += Query(row, i) * Element(n, i);
      for (uint32_t t = 0; t < kTokens; ++t) value += Weight(row, t) * Element(t, n);
      // NaN counts as wrong.
      if (!(result.scores[row][n] == score && result.values[row][n] == value)) {
        return all + "wrong";
      }
    }
  }
  return all;
}

TEST(HopperEmulationTest, BoxesAndProductsAreWhatArithmeticSays) {
  const uint64_t before = emulation::CountProducts();
  for (uint32_t seed = 0; seed < 6; ++seed) {
    emulation::SetSchedule(seed);
    EXPECT_EQ(RunWith(Fault::kNone), "");
  }
  emulation::SetSchedule(0);
  // Each product counts once for each of four warps.
  EXPECT_EQ(emulation::CountProducts() - before, 6u * 8 * 4);
}

TEST(HopperEmulationTest, FindsAMissingFence) {
  EXPECT_THAT(RunWith(Fault::kNoFenceOfStores), HasSubstr("without a fence for the asynchronous"));
  EXPECT_THAT(RunWith(Fault::kNoFenceOfProducts), HasSubstr("without a fence of its registers"));
  EXPECT_THAT(RunWith(Fault::kNoFenceOfBarriers), HasSubstr("no FenceBarriers"));
}

TEST(HopperEmulationTest, FindsAMissingWait) {
  EXPECT_THAT(RunWith(Fault::kNoWaitForBox), HasSubstr("box"));
  // Sums are NaN while they are added to.
  EXPECT_THAT(RunWith(Fault::kNoWaitForProducts), HasSubstr("wrong"));
}

TEST(HopperEmulationTest, FindsWhatChangesUnderAProduct) {
  EXPECT_THAT(RunWith(Fault::kStoresUnderProducts),
              HasSubstr("meets a product that has not ended"));
  EXPECT_THAT(RunWith(Fault::kWeightsChangeUnderProducts),
              HasSubstr("a left matrix in registers was touched"));
  EXPECT_THAT(RunWith(Fault::kEmptyTooEarly), HasSubstr("a box at"));
}

TEST(HopperEmulationTest, FindsAWrongLayout) {
  EXPECT_THAT(RunWith(Fault::kWrongSwizzle), HasSubstr("wrong"));
  EXPECT_THAT(RunWith(Fault::kWrongStride), HasSubstr("wrong"));
  EXPECT_THAT(RunWith(Fault::kMisplacedBox), HasSubstr("swizzled over 1,024 bytes"));
  EXPECT_THAT(RunWith(Fault::kOneWarpElsewhere), HasSubstr("start different products"));
}

TEST(HopperEmulationTest, FindsBytesThatDoNotCome) {
  EXPECT_THAT(RunWith(Fault::kTooManyBytes), HasSubstr("hangs"));
}

std::string Problems(uint32_t threads, const std::function<void()>& kernel) {
  emulation::Launch(1, threads, kSharedBytes, kernel);
  std::string all;
  for (const std::string& problem : emulation::TakeProblems()) all += problem + "\n";
  return all;
}

TEST(HopperEmulationTest, SumsThatAreWrittenUnderAProductAreFound) {
  EXPECT_THAT(Problems(128,
                       [] {
                         float sums[8][4] = {};
                         const uint32_t left[4] = {};
                         FenceProducts();
                         MultiplyRegisters<BFloat16>(sums, left, RowsOfColumn(SharedBase()));
                         CommitProducts();
                         sums[3][1] = 1;
                         WaitForProducts<0>();
                       }),
              HasSubstr("sums were touched"));
}

// Threads that come to a barrier without waiting: the others wait for them, in turn.
TEST(HopperEmulationTest, WarpsTakeTurns) {
  for (uint32_t seed = 0; seed < 20; seed += 2) {
    emulation::SetSchedule(seed);
    std::string turns;
    EXPECT_THAT(Problems(64,
                         [&turns] {
                           const uint32_t self = WarpIndex();
                           if (self == 1) ArriveSome(1, 64);
                           for (int i = 0; i < 3; ++i) {
                             SyncSome(1 + self, 64);
                             if (LaneIndex() == 0) turns += self == 0 ? 'a' : 'b';
                             SyncWarp();
                             ArriveSome(2 - self, 64);
                           }
                           if (self == 0) SyncSome(1, 64);
                         }),
                IsEmpty());
    EXPECT_EQ(turns, "ababab");
  }
  EXPECT_THAT(Problems(64, [] { ArriveSome(1, 96); }), HasSubstr("of 96 threads"));
  EXPECT_THAT(Problems(64,
                       [] {
                         if (WarpIndex() == 0) ArriveSome(1, 64);
                       }),
              HasSubstr("arrivals at a barrier"));
  // Such a barrier orders no access.
  EXPECT_THAT(Problems(64,
                       [] {
                         if (ThreadIndex() == 0) StoreShared(SharedBase(), 7u);
                         SyncWarp();
                         if (WarpIndex() == 0) ArriveSome(1, 64);
                         if (WarpIndex() == 1) SyncSome(1, 64);
                         if (ThreadIndex() == 32) LoadShared<uint32_t>(SharedBase());
                       }),
              HasSubstr("races"));
}

// Barriers of some threads, and barriers in shared memory, order earlier accesses, but only for the
// participating threads.
TEST(HopperEmulationTest, BarriersOrderWhoTakesPart) {
  const auto exchange = [](const std::function<void()>& barrier) {
    return [barrier] {
      if (ThreadIndex() == 0) {
        InitBarrier(SharedBase() + 32, 32);
        FenceBarriers();
      }
      SyncThreads();
      if (ThreadIndex() == 0) StoreShared(SharedBase(), 7u);
      barrier();
      if (ThreadIndex() / 32 == 1) {
        EXPECT_EQ(LoadShared<uint32_t>(SharedBase()), 7u);
      }
    };
  };
  EXPECT_THAT(Problems(96, exchange([] {
                         if (WarpIndex() < 2) SyncSome(1, 64);
                       })),
              IsEmpty());
  const auto by_phase = [](uint32_t who_waits) {
    return [who_waits] {
      if (WarpIndex() == 0) {
        SyncWarp();
        Arrive(SharedBase() + 32);
      }
      if (WarpIndex() == who_waits) WaitFor(SharedBase() + 32, 0);
    };
  };
  EXPECT_THAT(Problems(96, exchange(by_phase(1))), IsEmpty());
  // The warp that waited is not the warp that reads.
  emulation::SetSchedule(4);
  std::string all;
  for (uint32_t seed = 0; seed < 20; seed += 2) {
    emulation::SetSchedule(seed);
    emulation::Launch(1, 96, 64, [&] {
      if (ThreadIndex() == 0) {
        InitBarrier(SharedBase() + 32, 32);
        FenceBarriers();
      }
      SyncThreads();
      if (ThreadIndex() == 0) StoreShared(SharedBase(), 7u);
      by_phase(2)();
      if (WarpIndex() == 1) LoadShared<uint32_t>(SharedBase());
    });
    for (const std::string& problem : emulation::TakeProblems()) all += problem + "\n";
  }
  emulation::SetSchedule(0);
  EXPECT_THAT(all, HasSubstr("races with"));
}

TEST(HopperEmulationTest, FindsRegistersThatDoNotAddUp) {
  const auto take = [](auto give_up, auto more) {
    return [=] {
      if (WarpIndex() < 4) {
        give_up();
      } else {
        more();
      }
    };
  };
  const auto low = [] { GiveUpRegisters<40>(); };
  EXPECT_THAT(Problems(384, take(low, [] { TakeRegisters<232>(); })), IsEmpty());
  EXPECT_THAT(Problems(384, take(low, [] { TakeRegisters<240>(); })), HasSubstr("nobody gives up"));
  EXPECT_THAT(Problems(384, take([] {}, [] { TakeRegisters<232>(); })),
              HasSubstr("nobody gives up"));
}

// kHopper runs its prefill on products of warpgroups, and falls back as attention.h says.
TEST(HopperEmulationTest, KernelsForHopperAreTakenWhereTheyAreFor) {
  const auto products = [](AttentionCase attention_case) {
    const uint64_t before = emulation::CountProducts();
    AttentionData data(attention_case);
    EXPECT_TRUE(data.Run().ok());
    return emulation::CountProducts() - before;
  };
  const AttentionCase good = {.lengths = {{30, 60}}, .kernels = AttentionKernels::kHopper};
  EXPECT_GT(products(good), 0u);
  AttentionCase other = good;
  other.kernels = AttentionKernels::kSm80;
  EXPECT_EQ(products(other), 0u);
  other.kernels = AttentionKernels::kAuto;
  EXPECT_EQ(products(other), 0u) << "nothing is proved on the emulation";
  other = good;
  other.pool_type = ElementType::kFloat8E4M3;
  EXPECT_EQ(products(other), 0u);
  other = good;
  other.tokens_per_block = 12;
  EXPECT_EQ(products(other), 0u);
  other = good;
  other.mask.sparsity.block_tokens = 16;
  EXPECT_EQ(products(other), 0u);
  const AttentionCase latents = {
      .num_kv_heads = 1, .head_dim = 576, .value_dim = 512, .kernels = AttentionKernels::kHopper};
  EXPECT_GT(products(latents), 0u);
  other = latents;
  other.kernels = AttentionKernels::kSm80;
  EXPECT_EQ(products(other), 0u);
  other = latents;
  other.tokens_per_block = 12;
  EXPECT_EQ(products(other), 0u);
}

}  // namespace
}  // namespace pagoda::kernels::cuda
