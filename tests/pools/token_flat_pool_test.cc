#include "pools/token_flat_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/error.h"

namespace pagoda {
namespace {

using ::testing::HasSubstr;

// 3 layers of 2 heads with 8 elements of 2 bytes: 32 bytes per token, layer and part.
PoolLayout Shape(uint32_t kv_factor = 2) {
  return {.layers = {0, 2, 5},
          .num_kv_heads = 2,
          .head_dim = 8,
          .dtype = DType::kBFloat16,
          .kv_factor = kv_factor,
          .tokens_per_block = 4};
}
constexpr uint64_t kTokenBytes = 32;

std::unique_ptr<SharedMemoryPool> MakePool(PoolLayout layout, uint32_t num_slots) {
  static int count = 0;
  absl::StatusOr<std::unique_ptr<SharedMemoryPool>> pool = SharedMemoryPool::Create(
      {.shm_name = absl::StrCat("/pagoda-test-", getpid(), "-flat-", ++count),
       .layout = std::move(layout),
       .num_slots = num_slots,
       .pages = {.huge_pages = HugePages::kOff, .reservation = Reservation::kSparse}});
  EXPECT_TRUE(pool.ok()) << pool.status();
  return *std::move(pool);
}

// The memory that a pool has taken.
uint64_t TakenBytes(const SharedMemoryPool& pool) {
  const absl::StatusOr<FileDescriptor> fd = pool.OpenDescriptor(MemoryAccess::kRead);
  struct stat info;
  EXPECT_TRUE(fd.ok() && fstat(fd->get(), &info) == 0);
  return static_cast<uint64_t>(info.st_blocks) * 512;
}

// By nested loops: the index of a contiguous array, from the slowest dimension to the fastest.
TEST(TokenFlatPoolTest, CutsTheWholeMemoryByLayerPartTokenSlotAndHead) {
  for (const uint32_t kv_factor : {1u, 2u}) {
    const std::unique_ptr<SharedMemoryPool> pool = MakePool(Shape(kv_factor), 5);
    const TokenFlatPool flat(pool.get());
    const TokenFlatLayout& layout = flat.layout();
    EXPECT_EQ(layout.token_slots, 20u);
    uint64_t next = 0;
    for (uint64_t layer = 0; layer < 3; ++layer) {
      for (uint32_t kv = 0; kv < kv_factor; ++kv) {
        const absl::Span<std::byte> part = flat.part(layer, kv);
        EXPECT_EQ(part.size(), 20 * kTokenBytes);
        EXPECT_EQ(part.data() - pool->bytes().data(),
                  layer * layout.layer_stride_bytes + kv * layout.kv_stride_bytes);
        for (uint64_t token = 0; token < 20; ++token) {
          for (uint64_t head = 0; head < 2; ++head, next += 16) {
            const std::byte* const element =
                part.data() + token * layout.token_stride_bytes + head * layout.head_stride_bytes;
            ASSERT_EQ(element - pool->bytes().data(), next);
          }
        }
      }
    }
    EXPECT_EQ(next, pool->bytes().size()) << "no byte is left over";
  }
}

TEST(TokenFlatPoolTest, ReserveTakesMemoryForTheFirstTokenSlotsOfEveryLayer) {
  // A part has 128 pages.
  const std::unique_ptr<SharedMemoryPool> pool = MakePool(Shape(), 4096);
  TokenFlatPool flat(pool.get());
  EXPECT_EQ(flat.layout().token_slots, 16384u);
  EXPECT_EQ(flat.reserved_token_slots(), 0u);
  EXPECT_EQ(TakenBytes(*pool), 0u);
  ASSERT_TRUE(flat.Reserve(256).ok());  // 2 pages of each part.
  EXPECT_EQ(flat.reserved_token_slots(), 256u);
  EXPECT_EQ(TakenBytes(*pool), 6 * 2 * 4096u);
  for (uint64_t layer = 0; layer < 3; ++layer) {
    for (uint32_t kv = 0; kv < 2; ++kv) {
      std::memset(flat.part(layer, kv).data(), 1, 256 * kTokenBytes);
    }
  }
  EXPECT_EQ(TakenBytes(*pool), 6 * 2 * 4096u) << "writing reserved token slots takes no page";
  ASSERT_TRUE(flat.Reserve(255).ok());
  EXPECT_EQ(flat.reserved_token_slots(), 256u) << "nothing is given back";
}

TEST(TokenFlatPoolTest, GrowthKeepsBytesAndAddresses) {
  const std::unique_ptr<SharedMemoryPool> pool = MakePool(Shape(), 4096);
  TokenFlatPool flat(pool.get());
  uint64_t written = 0;  // Token slots.
  const auto byte_of = [](uint64_t layer, uint32_t kv, uint64_t token) {
    return static_cast<std::byte>(1 + layer * 70 + kv * 31 + token % 29);
  };
  std::vector<std::byte*> bases;
  for (uint64_t layer = 0; layer < 3; ++layer) {
    for (uint32_t kv = 0; kv < 2; ++kv) bases.push_back(flat.part(layer, kv).data());
  }
  for (const uint64_t tokens : {1, 3, 127, 128, 129, 1000, 5000, 16384}) {
    ASSERT_TRUE(flat.Reserve(tokens).ok());
    for (; written < tokens; ++written) {
      for (size_t i = 0; i < bases.size(); ++i) {
        std::memset(bases[i] + written * kTokenBytes,
                    static_cast<int>(byte_of(i / 2, i % 2, written)), kTokenBytes);
      }
    }
    for (size_t i = 0; i < bases.size(); ++i) {
      const absl::Span<std::byte> part = flat.part(i / 2, i % 2);
      ASSERT_EQ(part.data(), bases[i]);
      for (uint64_t token = 0; token < tokens; ++token) {
        for (uint64_t b = 0; b < kTokenBytes; ++b) {
          ASSERT_EQ(part[token * kTokenBytes + b], byte_of(i / 2, i % 2, token))
              << "token slot " << token << " after Reserve(" << tokens << ")";
        }
      }
    }
  }
}

TEST(TokenFlatPoolTest, RefusesMoreThanThePoolOrTheMachineHas) {
  const std::unique_ptr<SharedMemoryPool> small = MakePool(Shape(), 2);
  TokenFlatPool flat(small.get());
  EXPECT_TRUE(flat.Reserve(8).ok());
  const absl::Status beyond = flat.Reserve(9);
  EXPECT_EQ(ReasonOf(beyond), Reason::kInvalidArgument);
  EXPECT_THAT(std::string(beyond.message()), HasSubstr("9 token slots of a pool of 8"));

  PoolLayout wide = Shape();
  wide.num_kv_heads = 1 << 12;
  const std::unique_ptr<SharedMemoryPool> vast = MakePool(std::move(wide), 1 << 22);  // 6 TiB.
  TokenFlatPool sparse(vast.get());
  ASSERT_TRUE(sparse.Reserve(1).ok());
  const absl::Status none = sparse.Reserve(uint64_t{1} << 24);
  EXPECT_EQ(ReasonOf(none), Reason::kOutOfMemory) << none;
  EXPECT_THAT(std::string(none.message()), HasSubstr("are free"));
  EXPECT_EQ(sparse.reserved_token_slots(), 1u);
  EXPECT_LT(TakenBytes(*vast), uint64_t{8} << 20) << "nothing was taken";
}

TEST(TokenFlatPoolTest, CopiesTokenSlotsInEveryLayerAndTouchesNothingElse) {
  const std::unique_ptr<SharedMemoryPool> pool = MakePool(Shape(), 5);
  TokenFlatPool flat(pool.get());
  const absl::Span<std::byte> bytes = pool->bytes();
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 256);
  std::vector<std::byte> expected(bytes.begin(), bytes.end());
  for (uint64_t part = 0; part < 6; ++part) {
    const uint64_t base = part * 20 * kTokenBytes;
    std::copy_n(bytes.begin() + base + 3 * kTokenBytes, 5 * kTokenBytes,
                expected.begin() + base + 12 * kTokenBytes);
  }
  flat.Copy(3, 12, 5);
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), bytes.begin()));
}

}  // namespace
}  // namespace pagoda
