// The emulation finds the problems that emulator.h lists. Also tests the arithmetic of device.h
// that needs no warp.
#include "tests/kernels/cuda_emulation/emulator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "kernels/cuda/device/device.h"
#include "kernels/cuda/device/float8.h"
#include "kernels/numeric.h"
#include "tests/kernels/cuda/attention_case.h"

namespace pagoda::kernels::cuda {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

// The problems of a launch of one block, in one string.
std::string Problems(uint32_t threads, uint32_t shared_bytes, const std::function<void()>& kernel) {
  const int error = emulation::Launch(1, threads, shared_bytes, kernel);
  std::string all;
  for (const std::string& problem : emulation::TakeProblems()) all += problem + "\n";
  EXPECT_EQ(error == 0, all.empty());
  return all;
}

TEST(CudaEmulationTest, SharedMemoryBeginsAsNaN) {
  EXPECT_THAT(Problems(32, 64, [] { EXPECT_TRUE(std::isnan(LoadShared<float>(SharedBase()))); }),
              IsEmpty());
}

TEST(CudaEmulationTest, FindsAccessesOutside) {
  EXPECT_THAT(Problems(32, 64, [] { LoadShared<float>(SharedBase() + 64); }), HasSubstr("outside"));
  EXPECT_THAT(Problems(32, 64, [] { LoadShared<float>(SharedBase() - 4); }), HasSubstr("outside"));
  EXPECT_THAT(Problems(32, 64, [] { LoadShared<Vector16>(SharedBase() + 8); }),
              HasSubstr("not aligned"));
}

TEST(CudaEmulationTest, FindsRacesAndKnowsBarriers) {
  const auto exchange = [](uint32_t distance, const std::function<void()>& barrier) {
    return [distance, barrier] {
      StoreShared(SharedBase() + ThreadIndex() * 4, ThreadIndex());
      barrier();
      const uint32_t other = ThreadIndex() ^ distance;
      EXPECT_EQ(LoadShared<uint32_t>(SharedBase() + other * 4), other);
    };
  };
  EXPECT_THAT(Problems(64, 256, exchange(32, [] { SyncThreads(); })), IsEmpty());
  EXPECT_THAT(Problems(64, 256, exchange(1, [] { SyncWarp(); })), IsEmpty());
  // A barrier of one warp is no barrier for another warp.
  const auto of_warps = [] {
    StoreShared(SharedBase() + ThreadIndex() * 4, ThreadIndex());
    SyncWarp();
    LoadShared<uint32_t>(SharedBase() + (ThreadIndex() ^ 32) * 4);
  };
  EXPECT_THAT(Problems(64, 256, of_warps), HasSubstr("races with"));
  // Read by one thread, then written by another.
  const auto after = [] {
    LoadShared<uint32_t>(SharedBase() + ThreadIndex() * 4);
    StoreShared(SharedBase() + (ThreadIndex() ^ 1) * 4, 0u);
  };
  EXPECT_THAT(Problems(32, 128, after), HasSubstr("races with"));
}

TEST(CudaEmulationTest, FindsUnfinishedCopies) {
  alignas(16) static const uint32_t source[4] = {1, 2, 3, 4};
  const auto copy = [](bool wait) {
    return [wait] {
      if (ThreadIndex() == 0) {
        CopyAsync16(SharedBase(), source, true);
        CopyAsync16(SharedBase() + 16, source, false);
        CommitCopies();
        if (wait) WaitForCopies<0>();
      }
      SyncWarp();
      if (ThreadIndex() != 0) return;
      if (wait) {
        EXPECT_EQ(LoadShared<uint32_t>(SharedBase() + 4), 2u);
        EXPECT_EQ(LoadShared<uint32_t>(SharedBase() + 20), 0u);
      } else {
        LoadShared<uint32_t>(SharedBase() + 4);
      }
    };
  };
  EXPECT_THAT(Problems(32, 32, copy(true)), IsEmpty());
  EXPECT_THAT(Problems(32, 32, copy(false)), HasSubstr("has not waited"));
  const auto over_readers = [] {
    LoadShared<uint32_t>(SharedBase());
    if (ThreadIndex() == 31) {
      CopyAsync16(SharedBase(), source, true);
      CommitCopies();
      WaitForCopies<0>();
    }
  };
  EXPECT_THAT(Problems(32, 32, over_readers), HasSubstr("races with a read"));
}

TEST(CudaEmulationTest, FindsDivergenceAndHanging) {
  EXPECT_THAT(Problems(32, 16,
                       [] {
                         if (ThreadIndex() < 16) {
                           SyncWarp();
                         } else {
                           ShuffleXor(1.0f, 1);
                         }
                       }),
              HasSubstr("come to"));
  EXPECT_THAT(Problems(64, 16,
                       [] {
                         if (ThreadIndex() >= 32) SyncThreads();
                       }),
              HasSubstr("hangs"));
}

// A product of matrices of small integers, all exact, through the fragments of the PTX ISA.
TEST(CudaEmulationTest, MultipliesMatrices) {
  const auto a = [](uint32_t row, uint32_t k) { return static_cast<float>((row * 3 + k) % 7) - 3; };
  const auto b = [](uint32_t k, uint32_t column) {
    return static_cast<float>((k * 5 + column) % 9) - 4;
  };
  EXPECT_THAT(Problems(32, 16,
                       [&] {
                         const uint32_t g = LaneIndex() / 4;
                         const uint32_t c = LaneIndex() % 4 * 2;
                         const auto pair = [&](uint32_t row, uint32_t k) {
                           return PackPair<BFloat16>(a(row, k), a(row, k + 1));
                         };
                         const uint32_t left[4] = {pair(g, c), pair(g + 8, c), pair(g, c + 8),
                                                   pair(g + 8, c + 8)};
                         float sums[4] = {1, 2, 3, 4};
                         MultiplyMatrices<BFloat16>(sums, left,
                                                    PackPair<BFloat16>(b(c, g), b(c + 1, g)),
                                                    PackPair<BFloat16>(b(c + 8, g), b(c + 9, g)));
                         for (uint32_t r = 0; r < 4; ++r) {
                           float expected = static_cast<float>(r + 1);
                           for (uint32_t k = 0; k < 16; ++k) {
                             expected += a(g + r / 2 * 8, k) * b(k, c + r % 2);
                           }
                           EXPECT_EQ(sums[r], expected);
                         }
                       }),
              IsEmpty());
}

TEST(CudaEmulationTest, LoadsAndTransposesMatrices) {
  EXPECT_THAT(Problems(32, 512,
                       [] {
                         const uint32_t lane = LaneIndex();
                         const uint32_t row = SharedBase() + lane * 16;
                         // Element i of row r is 8 r + i, r counted through the four matrices.
                         Vector16 vector;
                         for (uint32_t w = 0; w < 4; ++w) {
                           vector.words[w] = (lane * 8 + 2 * w) | (lane * 8 + 2 * w + 1) << 16;
                         }
                         StoreShared(row, vector);
                         SyncWarp();
                         uint32_t plain[4];
                         uint32_t transposed[4];
                         LoadMatrices(plain, row);
                         LoadMatricesTransposed(transposed, row);
                         const uint32_t g = lane / 4;
                         const uint32_t c = lane % 4 * 2;
                         for (uint32_t m = 0; m < 4; ++m) {
                           const auto element = [m](uint32_t r, uint32_t i) {
                             return (8 * m + r) * 8 + i;
                           };
                           EXPECT_EQ(plain[m], element(g, c) | element(g, c + 1) << 16);
                           EXPECT_EQ(transposed[m], element(c, g) | element(c + 1, g) << 16);
                           EXPECT_EQ(TransposeMatrix(plain[m]), transposed[m]);
                         }
                       }),
              IsEmpty());
}

// `convert` makes two pairs of T out of four bytes.
template <class T, class Convert>
void ExpectExact(ElementType type, const Convert& convert) {
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const float expected = VisitElementType(type, [&]<class F>() {
      if constexpr (sizeof(F) == 1) return ToFloat(F{static_cast<uint8_t>(byte)});
      return 0.0f;
    });
    for (uint32_t at = 0; at < 4; ++at) {
      uint32_t pairs[2];
      convert(byte << (8 * at), pairs[0], pairs[1]);
      const float got = ToFloat(T{static_cast<uint16_t>(pairs[at / 2] >> (at % 2 * 16))});
      if (std::isnan(expected)) {
        EXPECT_TRUE(std::isnan(got)) << byte;
      } else {
        EXPECT_EQ(got, expected) << byte;
        EXPECT_EQ(std::signbit(got), std::signbit(expected)) << byte;
      }
    }
  }
}

// By the hardware's conversion, which sm_89 and later have, and by steps.
TEST(CudaEmulationTest, EightBitsBecomeSixteenExactly) {
  const auto of_type = []<class T>(T, ElementType type) {
    ExpectExact<T>(type, [type](uint32_t bytes, uint32_t& first, uint32_t& second) {
      FromFloat8<T>(bytes, type, first, second);
    });
  };
  for (const ElementType type : {ElementType::kFloat8E4M3, ElementType::kFloat8E5M2}) {
    of_type(BFloat16{}, type);
    of_type(Half{}, type);
  }
  ExpectExact<BFloat16>(ElementType::kFloat8E4M3, FromE4M3BySteps<BFloat16>);
  ExpectExact<Half>(ElementType::kFloat8E4M3, FromE4M3BySteps<Half>);
}

// sm_86, sm_89 and sm_120: decode and prefill run on tensor cores, with the shared memory that a
// block can have there.
TEST(CudaEmulationTest, LittleSharedMemoryIsEnoughForTensorCores) {
  emulation::SetMostSharedBytes(99 * 1024);
  for (const uint32_t dim : {64u, 128u, 192u, 256u}) {
    for (const ElementType pool :
         {ElementType::kBFloat16, ElementType::kFloat8E4M3, ElementType::kFloat8E5M2}) {
      // 4 rows, 16 rows, and a long item; each walks several tiles, and some blocks several units.
      for (const int32_t queries : {1, 4, 30}) {
        AttentionCase attention_case = {.seed = dim + static_cast<uint32_t>(queries),
                                        .pool_type = pool,
                                        .num_kv_heads = 2,
                                        .head_dim = dim,
                                        .lengths = {{queries, 150}, {queries, 40}},
                                        .split_tokens = queries == 1 ? 64u : 0u,
                                        .kernels = AttentionKernels::kSm80};
        for (const uint32_t schedule : {0u, 1u}) {
          emulation::SetSchedule(schedule);
          AttentionData data(attention_case);
          const uint64_t before = emulation::warp_products;
          const absl::StatusOr<AttentionResult> result = data.Run();
          ASSERT_TRUE(result.ok()) << attention_case.Describe() << ": " << result.status();
          EXPECT_EQ(Compare(attention_case, *result, data.Reference()), "");
          EXPECT_GT(emulation::warp_products, before) << attention_case.Describe();
        }
      }
    }
  }
  emulation::SetSchedule(0);
  emulation::SetMostSharedBytes(227 * 1024);
}

}  // namespace
}  // namespace pagoda::kernels::cuda
