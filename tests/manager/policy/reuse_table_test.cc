#include "manager/policy/reuse_table.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"

namespace pagoda {
namespace {

constexpr uint32_t kBins = ReuseIndex::kBins;

ReuseTable RandomTable(uint64_t seed) {
  std::mt19937_64 random(seed);
  ReuseTable table{.shift = static_cast<uint32_t>(random() % 20)};
  for (auto& of_class : table.counts) {
    for (ReuseIndex::Counts& counts : of_class) {
      counts.reached = static_cast<float>(random() % 10'000) / 7;
      counts.reused = static_cast<float>(random() % 1'000) / 3;
    }
  }
  table.lead = -2.5F;
  table.variance = 17;
  table.trusts_index = seed % 2 == 0;
  return table;
}

void ExpectEqual(const ReuseTable& a, const ReuseTable& b) {
  EXPECT_EQ(a.shift, b.shift);
  for (uint32_t c = 0; c < ReuseClass::kCount; ++c) {
    for (uint32_t k = 0; k < kBins; ++k) {
      ASSERT_EQ(a.counts[c][k].reached, b.counts[c][k].reached) << c << " " << k;
      ASSERT_EQ(a.counts[c][k].reused, b.counts[c][k].reused) << c << " " << k;
    }
  }
  EXPECT_EQ(a.lead, b.lead);
  EXPECT_EQ(a.variance, b.variance);
  EXPECT_EQ(a.trusts_index, b.trusts_index);
}

TEST(ReuseTableTest, ItsBytesMakeTheSameTable) {
  for (uint64_t seed = 0; seed < 4; ++seed) {
    const ReuseTable table = RandomTable(seed);
    const absl::StatusOr<ReuseTable> decoded = DecodeReuseTable(Encode(table));
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    ExpectEqual(*decoded, table);
  }
}

TEST(ReuseTableTest, TablesFollowEachOther) {
  const std::vector<ReuseTable> tables = {RandomTable(1), RandomTable(2), RandomTable(3)};
  std::vector<std::byte> bytes = Encode(tables);
  const absl::StatusOr<std::vector<ReuseTable>> decoded = DecodeReuseTables(bytes);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  ASSERT_EQ(decoded->size(), tables.size());
  for (size_t i = 0; i < tables.size(); ++i) ExpectEqual((*decoded)[i], tables[i]);
  bytes.pop_back();
  EXPECT_FALSE(DecodeReuseTables(bytes).ok());
  EXPECT_FALSE(DecodeReuseTables({}).ok());
}

// The message of the refusal.
std::string Refusal(const std::vector<std::byte>& bytes) {
  const absl::Status status = DecodeReuseTable(bytes).status();
  EXPECT_EQ(ReasonOf(status), Reason::kInvalidArgument);
  return std::string(status.message());
}

template <class T>
std::vector<std::byte> With(std::vector<std::byte> bytes, size_t at, T value) {
  std::memcpy(&bytes[at], &value, sizeof(value));
  return bytes;
}

TEST(ReuseTableTest, AnotherFormatOrOtherClassesAreRefusedByName) {
  const std::vector<std::byte> bytes = Encode(RandomTable(1));
  EXPECT_EQ(Refusal(With(bytes, 0, uint32_t{1})), "the learned table has format 1, not 2");
  const uint32_t more = ReuseClass::kCount + 1;
  EXPECT_EQ(Refusal(With(bytes, 4, more)), "the learned table has " + std::to_string(more) +
                                               " classes and " + std::to_string(kBins) +
                                               " bins, not " + std::to_string(ReuseClass::kCount) +
                                               " and " + std::to_string(kBins));
  EXPECT_NE(Refusal(With(bytes, 8, uint32_t{63})).find(" and 63 bins"), std::string::npos);
}

TEST(ReuseTableTest, NumbersThatNoTableHasAreRefused) {
  constexpr size_t kShiftAt = 12, kCountsAt = 16;
  const std::vector<std::byte> bytes = Encode(RandomTable(1));
  const size_t trusts_at = bytes.size() - 4, variance_at = bytes.size() - 8,
               lead_at = bytes.size() - 12;
  const std::string damaged = "the learned table is damaged";
  EXPECT_EQ(Refusal(With(bytes, kShiftAt, uint32_t{32})), damaged);
  EXPECT_EQ(Refusal(With(bytes, trusts_at, uint32_t{2})), damaged);
  for (const size_t at : {kCountsAt, kCountsAt + 4, lead_at - 4, variance_at, lead_at}) {
    EXPECT_EQ(Refusal(With(bytes, at, std::nanf(""))), damaged) << at;
    EXPECT_EQ(Refusal(With(bytes, at, std::numeric_limits<float>::infinity())), damaged) << at;
    EXPECT_EQ(Refusal(With(bytes, at, -2e9F)), damaged) << at;
    if (at != lead_at) {
      EXPECT_EQ(Refusal(With(bytes, at, -1.0F)), damaged) << at;
    }
  }
}

TEST(ReuseTableTest, AnyOtherSizeIsRefused) {
  std::vector<std::byte> bytes = Encode(RandomTable(1));
  for (size_t size = 0; size < bytes.size(); ++size) {
    ASSERT_FALSE(DecodeReuseTable(absl::MakeConstSpan(bytes).first(size)).ok()) << size;
  }
  bytes.push_back(std::byte{0});
  EXPECT_FALSE(DecodeReuseTable(bytes).ok());
}

// --- Another clock ---

double Reused(const ReuseTable& table, uint32_t c) {
  double sum = 0;
  for (const ReuseIndex::Counts& counts : table.counts[c]) sum += counts.reused;
  return sum;
}

TEST(ReuseTableTest, AnotherClockKeepsAgesInAccesses) {
  const ReuseTable table = RandomTable(2);
  for (int change = -12; change <= 12; ++change) {
    const auto shift = static_cast<uint32_t>(std::max(0, static_cast<int>(table.shift) + change));
    const ReuseTable to = Rescaled(table, shift);
    EXPECT_EQ(to.shift, shift);
    for (uint32_t c = 0; c < ReuseClass::kCount; ++c) {
      if (shift <= table.shift) {
        EXPECT_NEAR(Reused(to, c), Reused(table, c), 0.1) << "a re-use stays one";
      }
      for (uint32_t k = 1; k + 1 < kBins; ++k) {
        const uint64_t start = ReuseIndex::StartOf(k) << table.shift >> shift;
        const uint32_t bin = ReuseIndex::BinOf(start + start / 10);
        if (start <= ReuseIndex::StartOf(1) || bin + 1 >= kBins) continue;
        EXPECT_EQ(to.counts[c][bin].reached, table.counts[c][k].reached) << change << " " << k;
        EXPECT_EQ(to.counts[c][bin].reused, table.counts[c][k].reused) << change << " " << k;
      }
    }
  }
}

TEST(ReuseTableTest, TheFirstBinBecomesSeveralThatSayTheSame) {
  ReuseTable table{.shift = 5};
  table.counts[0][0] = {.reached = 1'000, .reused = 400};
  table.counts[0][1] = {.reached = 600, .reused = 60};
  const ReuseTable finer = Rescaled(table, 4);
  for (uint32_t k = 0; k < 4; ++k) {
    EXPECT_EQ(finer.counts[0][k].reached, 1'000 - 100.0F * static_cast<float>(k));
    EXPECT_EQ(finer.counts[0][k].reused, 100);
  }
  EXPECT_EQ(finer.counts[0][4].reached, 600);
  const ReuseTable back = Rescaled(finer, 5);
  EXPECT_EQ(back.counts[0][0].reached, 1'000);
  EXPECT_EQ(back.counts[0][0].reused, 400);
  EXPECT_EQ(back.counts[0][1].reused, 60);
}

TEST(ReuseTableTest, AgesBeyondTheLastBinGoIntoIt) {
  ReuseTable table{.shift = 1};
  for (ReuseIndex::Counts& counts : table.counts[0]) counts = {.reached = 10, .reused = 1};
  const ReuseTable to = Rescaled(table, 0);
  EXPECT_EQ(to.counts[0][kBins - 1].reached, 10);
  EXPECT_EQ(to.counts[0][kBins - 1].reused, 4) << "of the last four bins";
  // Farther than all bins.
  table.shift = 31;
  EXPECT_NEAR(Reused(Rescaled(table, 0), 0), kBins, 0.1);
  table.shift = 0;
  EXPECT_EQ(Rescaled(table, 31).counts[0][0].reused, kBins);
}

}  // namespace
}  // namespace pagoda
