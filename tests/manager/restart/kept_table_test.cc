#include "manager/restart/kept_table.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "manager/policy/reuse_table.h"
#include "manager/restart/slot_checksum.h"
#include "pools/types.h"

namespace pagoda {
namespace {

using Bytes = std::vector<std::byte>;
using Left = std::optional<Bytes>;

const ContentDigest kFingerprint = {{std::byte{42}}};
constexpr size_t kCopyBytes = 64 * 1024;
// What a window can learn, in each of its tiers. The bytes are about the numbers.
static_assert(kMaxTiers * (sizeof(ReuseTable) + 64) <= KeptTable::kMaxBytes);

Bytes Table(size_t size, uint64_t seed) {
  std::mt19937_64 random(seed);
  Bytes bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

class KeptTableTest : public testing::Test {
 protected:
  ~KeptTableTest() override { EXPECT_TRUE(SharedMemory::RemoveLeftover(name_).ok()); }

  KeptTable Open(const ContentDigest& fingerprint = kFingerprint) const {
    absl::StatusOr<KeptTable> table = KeptTable::Create(name_, fingerprint);
    EXPECT_TRUE(table.ok()) << table.status();
    table->KeepName();
    return *std::move(table);
  }
  // The table that is there; none also after an error.
  static Left Read(const KeptTable& table) {
    const absl::StatusOr<Left> left = table.Read();
    return left.ok() ? *left : std::nullopt;
  }

  const std::string name_ = absl::StrCat("/pagoda-kepttable-", getpid());
};

TEST_F(KeptTableTest, TheNextOwnerReadsTheLastWrite) {
  for (uint64_t i = 0; i < 6; ++i) {
    KeptTable table = Open();
    EXPECT_EQ(Read(table), i == 0 ? Left() : Left(Table(700 + i, i - 1 + 100 * i)));
    for (uint64_t write = 0; write <= i; ++write) {
      ASSERT_TRUE(table.Write(Table(701 + i, write + 100 * (i + 1))));
      EXPECT_EQ(Read(table), Table(701 + i, write + 100 * (i + 1)));
    }
  }
}

TEST_F(KeptTableTest, NewMemoryEndsWithItsOwnerUnlessItIsKept) {
  { ASSERT_TRUE(KeptTable::Create(name_, kFingerprint)->Write(Table(9, 1))); }
  const absl::StatusOr<Left> left = Open().Read();
  ASSERT_TRUE(left.ok()) << left.status();
  EXPECT_EQ(*left, std::nullopt);
}

TEST_F(KeptTableTest, AFirstWriteThatWasCutShortIsDamage) {
  KeptTable table = Open();
  ASSERT_TRUE(table.Write(Table(300, 1)));
  table.bytes()[200] ^= std::byte{1};
  EXPECT_TRUE(absl::IsDataLoss(table.Read().status())) << table.Read().status();
}

TEST_F(KeptTableTest, ALargeTableFitsAndATooLargeOneIsRefused) {
  KeptTable table = Open();
  const Bytes large = Table(KeptTable::kMaxBytes, 1);
  ASSERT_TRUE(table.Write(large));
  ASSERT_TRUE(table.Write(large));
  EXPECT_FALSE(table.Write(Table(KeptTable::kMaxBytes + 1, 2)));
  EXPECT_EQ(Read(table), large);
  ASSERT_TRUE(table.Write({}));
  EXPECT_EQ(Read(table), Bytes()) << "an empty table is one";
}

// A process that dies during a write has written any part of it.
TEST_F(KeptTableTest, AWriteThatWasCutShortLeavesTheOneBefore) {
  KeptTable table = Open();
  const Bytes first = Table(300, 1), second = Table(300, 2), third = Table(300, 3);
  ASSERT_TRUE(table.Write(first));
  ASSERT_TRUE(table.Write(second));
  const Bytes before(table.bytes().begin(), table.bytes().end());
  ASSERT_TRUE(table.Write(third));
  const Bytes after(table.bytes().begin(), table.bytes().end());
  std::mt19937_64 random(1);
  int whole = 0;
  for (int round = 0; round < 2'000; ++round) {
    // The new bytes up to some place, or a random choice of them.
    const size_t end = random() % 400;
    for (const size_t copy : {size_t{0}, kCopyBytes}) {
      for (size_t i = 0; i < 400; ++i) {
        const bool written = round % 2 == 0 ? i < end : random() % 8 != 0;
        table.bytes()[copy + i] = written ? after[copy + i] : before[copy + i];
      }
    }
    const Left left = Read(table);
    ASSERT_TRUE(left == second || left == third) << "after " << end << " bytes";
    whole += left == third;
  }
  EXPECT_GT(whole, 0);
}

TEST_F(KeptTableTest, AnyDamagedBitIsNoticed) {
  KeptTable table = Open();
  const Bytes first = Table(40, 1), second = Table(40, 2);
  ASSERT_TRUE(table.Write(first));
  ASSERT_TRUE(table.Write(second));
  const size_t newest = std::memcmp(&table.bytes()[64], second.data(), 40) == 0 ? 0 : kCopyBytes;
  const size_t older = kCopyBytes - newest;
  for (size_t bit = 0; bit < (64 + 40) * 8; ++bit) {
    table.bytes()[newest + bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    EXPECT_EQ(Read(table), first) << "bit " << bit;
    table.bytes()[older + bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    const absl::Status both = table.Read().status();
    EXPECT_TRUE(absl::IsDataLoss(both)) << "bit " << bit << " " << both;
    table.bytes()[newest + bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    EXPECT_EQ(Read(table), second) << "bit " << bit;
    table.bytes()[older + bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
  }
  // The next write repairs it.
  table.bytes()[70] ^= std::byte{1};
  table.bytes()[kCopyBytes + 70] ^= std::byte{1};
  ASSERT_TRUE(table.Write(first));
  EXPECT_EQ(Read(table), first);
}

TEST_F(KeptTableTest, ATableOfAnotherFingerprintIsNotRead) {
  {
    KeptTable table = Open();
    ASSERT_TRUE(table.Write(Table(40, 1)));
    ASSERT_TRUE(table.Write(Table(40, 2)));
  }
  KeptTable other = Open({{std::byte{43}}});
  EXPECT_TRUE(absl::IsFailedPrecondition(other.Read().status())) << other.Read().status();
  ASSERT_TRUE(other.Write(Table(40, 3)));
  EXPECT_EQ(Read(other), Table(40, 3));
}

TEST_F(KeptTableTest, ATableOfAnotherFormatIsNotRead) {
  KeptTable table = Open();
  ASSERT_TRUE(table.Write(Table(40, 1)));
  const absl::Span<std::byte> copy = table.bytes().first(64 + 40);
  const uint32_t format = 2;
  std::memcpy(&copy[16], &format, sizeof(format));
  const uint64_t checksum = Checksum(copy.subspan(16));
  std::memcpy(&copy[8], &checksum, sizeof(checksum));
  EXPECT_EQ(table.Read().status().message(), "the table that was left has format 2, not 1");
}

}  // namespace
}  // namespace pagoda
