#include "pools/store/stored_value.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/types/span.h"

namespace pagoda {
namespace {

constexpr size_t kBlockBytes = 1000;

StoreKey KeyOf(uint8_t digest, uint8_t layout = 1, uint32_t window = 0) {
  StoreKey key;
  key.layout.fill(std::byte{layout});
  key.digest.fill(std::byte{digest});
  key.window_size = window;
  return key;
}

std::vector<std::byte> Bytes(uint32_t seed, size_t size = kBlockBytes) {
  std::mt19937 random(seed);
  std::vector<std::byte> bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

std::vector<std::byte> ValueOf(const StoreKey& key, const std::string& secret,
                               const std::vector<std::byte>& block) {
  const absl::Span<const std::byte> pieces[] = {block};
  const StoredHeader header = MakeStoredHeader(key, secret, pieces);
  std::vector<std::byte> value(header.begin(), header.end());
  value.insert(value.end(), block.begin(), block.end());
  return value;
}

struct Read {
  ValueFault fault;
  std::vector<std::byte> block;
};

// Reads a value in steps of random sizes into pieces of random sizes.
Read ReadValue(const StoreKey& key, const std::string& secret, const std::vector<std::byte>& value,
               uint32_t seed = 0) {
  std::mt19937 random(seed);
  Read read = {ValueFault::kNone, std::vector<std::byte>(kBlockBytes)};
  std::vector<absl::Span<std::byte>> pieces;
  for (size_t at = 0; at < kBlockBytes;) {
    const size_t size = std::min<size_t>(random() % 400, kBlockBytes - at);  // Also empty ones.
    pieces.push_back(absl::MakeSpan(read.block).subspan(at, size));
    at += size;
  }
  StoredValueReader reader(key, secret, pieces);
  for (int round = 0; round < 2; ++round) {  // The first time it breaks off.
    reader.Begin(value.size());
    size_t at = 0;
    const size_t end = round == 0 ? value.size() / 2 : value.size();
    while (at < end) {
      std::array<iovec, 3> places;
      const size_t count = reader.Places(absl::MakeSpan(places).first(1 + random() % 3));
      if (count == 0) break;
      size_t room = 0;
      for (size_t i = 0; i < count; ++i) room += places[i].iov_len;
      const size_t size = std::min({end - at, room, size_t{1} + random() % 300});
      size_t left = size;
      for (size_t i = 0; i < count && left > 0; ++i) {
        const size_t part = std::min(left, places[i].iov_len);
        std::memcpy(places[i].iov_base, value.data() + at, part);
        at += part;
        left -= part;
      }
      reader.Advance(size);
    }
  }
  read.fault = reader.Finish();
  return read;
}

TEST(StoredValueTest, RoundTripInAnyParts) {
  for (const std::string secret : {"", "secret"}) {
    const std::vector<std::byte> block = Bytes(3);
    const std::vector<std::byte> value = ValueOf(KeyOf(5), secret, block);
    for (uint32_t seed = 0; seed < 300; ++seed) {
      const Read read = ReadValue(KeyOf(5), secret, value, seed);
      ASSERT_EQ(read.fault, ValueFault::kNone) << seed;
      ASSERT_EQ(read.block, block) << seed;
    }
  }
}

TEST(StoredValueTest, TheHeaderIsAsDocumented) {
  const StoreKey key = KeyOf(5, 9, 512);
  const std::vector<std::byte> value = ValueOf(key, "", Bytes(1));
  EXPECT_EQ(std::memcmp(value.data(), "PAGODAKV\1\0\0\0\x90\0\0\0", 16), 0);
  EXPECT_EQ(value[16], std::byte{9});
  EXPECT_EQ(value[48], std::byte{5});
  EXPECT_EQ(std::memcmp(value.data() + 80, "\0\2\0\0\0\0\0\0\xe8\3\0\0\0\0\0\0", 16), 0);
  EXPECT_TRUE(std::all_of(value.begin() + 112, value.begin() + 144, [](std::byte byte) {
    return byte == std::byte{0};
  })) << "no secret, no code";
}

TEST(StoredValueTest, NamesAreReadableAndKeepTheDigestSecret) {
  const StoreKey key = KeyOf(0xab, 1, 64);
  EXPECT_EQ(StoredName("p:", "", key), "p:v1:01010101010101010101010101010101:64:" +
                                           std::string("abababababababababababababababab") +
                                           "abababababababababababababababab");
  const std::string secret = StoredName("p:", "secret", key);
  EXPECT_EQ(secret.size(), StoredName("p:", "", key).size());
  EXPECT_EQ(secret.find("abababab"), std::string::npos);
  EXPECT_NE(secret, StoredName("p:", "other", key));
}

TEST(StoredValueTest, ANameSaysWhatItNames) {
  for (const uint32_t window : {0u, 64u, 4'294'967'295u}) {
    for (const std::string secret : {"", "secret"}) {
      const StoreKey key = KeyOf(0xab, 1, window);
      const std::string name = StoredName("p:", secret, key);
      const std::optional<ParsedName> parsed = ParseStoredName("p:", name);
      ASSERT_TRUE(parsed.has_value()) << name;
      EXPECT_TRUE(std::equal(parsed->layout.begin(), parsed->layout.end(), key.layout.begin()));
      EXPECT_EQ(parsed->window_size, window);
      EXPECT_EQ(parsed->digest, NameDigest(secret, key.digest));
      EXPECT_EQ(parsed->digest == key.digest, secret.empty());
    }
  }
  // Each block has one name: other spellings are none.
  const std::string name = StoredName("p:", "", KeyOf(0xab, 1, 64));
  for (size_t i = 0; i < name.size(); ++i) {
    std::string cut = name, longer = name, other = name;
    cut.erase(i, 1);
    const bool is_other_window =
        cut.find(":4:") != std::string::npos || cut.find(":6:") != std::string::npos;
    EXPECT_EQ(ParseStoredName("p:", cut).has_value(), is_other_window) << cut;
    longer.insert(i, " ");
    EXPECT_FALSE(ParseStoredName("p:", longer).has_value()) << longer;
    other[i] = static_cast<char>(std::toupper(other[i]));
    EXPECT_EQ(ParseStoredName("p:", other).has_value(), other == name) << other;
  }
  for (const char* text : {"", "p:", "p:v1", "p:v1:::", "q:", "p:v1:00:64:00"}) {
    EXPECT_FALSE(ParseStoredName("p:", text).has_value()) << text;
  }
  const std::string layout = name.substr(0, name.find(":64:")),
                    digest = name.substr(name.rfind(':'));
  for (const char* window : {"064", "+64", "-1", "4294967296", "", "6 4", "0x40"}) {
    EXPECT_FALSE(ParseStoredName("p:", layout + ":" + window + digest).has_value()) << window;
  }
}

TEST(StoredValueTest, OtherBlocksAreNotServed) {
  const std::vector<std::byte> value = ValueOf(KeyOf(5), "", Bytes(1));
  EXPECT_EQ(ReadValue(KeyOf(6), "", value).fault, ValueFault::kSwapped);
  EXPECT_EQ(ReadValue(KeyOf(5, 1, 4), "", value).fault, ValueFault::kSwapped);
  EXPECT_EQ(ReadValue(KeyOf(5, 2), "", value).fault, ValueFault::kForeign);
  EXPECT_EQ(ReadValue(KeyOf(5), "", Bytes(1, 1144)).fault, ValueFault::kForeign);
  EXPECT_EQ(ReadValue(KeyOf(5), "", Bytes(1, 20)).fault, ValueFault::kForeign);
  EXPECT_EQ(ReadValue(KeyOf(5), "", {}).fault, ValueFault::kForeign);
  EXPECT_EQ(ReadValue(KeyOf(5), "", ValueOf(KeyOf(5), "", Bytes(1, 999))).fault,
            ValueFault::kTruncated);
}

TEST(StoredValueTest, ABlockOfAnotherKeyDoesNotReachThePieces) {
  const std::vector<std::byte> value = ValueOf(KeyOf(5), "", Bytes(1));
  const Read read = ReadValue(KeyOf(6), "", value);
  EXPECT_EQ(read.block, std::vector<std::byte>(kBlockBytes));
}

TEST(StoredValueTest, AForgedValueIsNotServed) {
  const std::vector<std::byte> block = Bytes(1);
  EXPECT_EQ(ReadValue(KeyOf(5), "secret", ValueOf(KeyOf(5), "", block)).fault, ValueFault::kForged);
  EXPECT_EQ(ReadValue(KeyOf(5), "secret", ValueOf(KeyOf(5), "guess", block)).fault,
            ValueFault::kForged);
  // An attacker who computes the checksum of other bytes, and keeps the code.
  std::vector<std::byte> value = ValueOf(KeyOf(5), "secret", block);
  const std::vector<std::byte> other = ValueOf(KeyOf(5), "", Bytes(2));
  std::copy(other.begin() + 96, other.begin() + 112, value.begin() + 96);
  std::copy(other.begin() + 144, other.end(), value.begin() + 144);
  EXPECT_EQ(ReadValue(KeyOf(5), "secret", value).fault, ValueFault::kForged);
  EXPECT_EQ(ReadValue(KeyOf(5), "", ValueOf(KeyOf(5), "secret", block)).fault, ValueFault::kNone)
      << "who has no secret checks no code";
}

// A value without a secret has fields that nobody checks: the authentication code. Everything else
// must be as it was.
TEST(StoredValueTest, TenThousandCorruptedValuesAreNotServed) {
  for (const std::string secret : {"", "secret"}) {
    const std::vector<std::byte> block = Bytes(1);
    const std::vector<std::byte> good = ValueOf(KeyOf(5), secret, block);
    int served = 0;
    std::mt19937 random(7);
    for (int round = 0; round < 5000; ++round) {
      std::vector<std::byte> bad = good;
      switch (random() % 5) {
        case 0:  // A bit.
          bad[random() % bad.size()] ^= static_cast<std::byte>(1 << random() % 8);
          break;
        case 1:  // The end is missing, or there is more.
          bad.resize(random() % (2 * bad.size()));
          break;
        case 2: {  // A run of zeros, as a torn write leaves it.
          const size_t at = random() % bad.size();
          std::fill(bad.begin() + static_cast<ptrdiff_t>(at), bad.end(), std::byte{0});
          break;
        }
        case 3: {  // Two parts are swapped.
          const size_t half = 144 + random() % 400;
          std::rotate(bad.begin() + 144, bad.begin() + static_cast<ptrdiff_t>(half) + 1, bad.end());
          break;
        }
        default:  // The header of another block.
          bad = ValueOf(KeyOf(static_cast<uint8_t>(6 + random() % 200)), secret, Bytes(1));
      }
      if (bad == good) continue;
      const Read read = ReadValue(KeyOf(5), secret, bad, static_cast<uint32_t>(round));
      if (read.fault != ValueFault::kNone) continue;
      ++served;
      ASSERT_EQ(read.block, block) << round;
      ASSERT_TRUE(std::equal(bad.begin(), bad.begin() + 84, good.begin())) << round;
    }
    EXPECT_LE(served, secret.empty() ? 100 : 0);
  }
}

TEST(StoredValueTest, NothingIsWrittenAfterDrop) {
  std::vector<std::byte> block(kBlockBytes);
  const absl::Span<std::byte> pieces[] = {absl::MakeSpan(block)};
  StoredValueReader reader(KeyOf(5), "", pieces);
  reader.Begin(kStoredHeaderBytes + kBlockBytes);
  iovec place;
  ASSERT_EQ(reader.Places(absl::MakeSpan(&place, 1)), 1u);
  reader.Drop();
  EXPECT_EQ(reader.Places(absl::MakeSpan(&place, 1)), 0u);
  reader.Begin(kStoredHeaderBytes + kBlockBytes);
  EXPECT_EQ(reader.Places(absl::MakeSpan(&place, 1)), 0u) << "also if the value comes anew";
  EXPECT_NE(reader.Finish(), ValueFault::kNone);
}

}  // namespace
}  // namespace pagoda
