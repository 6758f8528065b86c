#include "manager/restart/slot_stamps.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <random>

#include "absl/strings/str_cat.h"
#include "events/client_key.h"

namespace pagoda {
namespace {

constexpr uint32_t kTokensPerBlock = 16;
constexpr uint32_t kSlots = 5;
const ContentDigest kFingerprint = {{std::byte{42}}};

ContentDigest FingerprintOf(LayerSpec layer) {
  return StampsFingerprint(*CacheLayout::Create({.layers = {layer}}), 0, kPrimaryTier);
}

TEST(StampsFingerprintTest, TellsPackingsOfAsManyBytesApart) {
  const LayerSpec e4m3 = {.num_kv_heads = 1, .head_dim = 8, .dtype = DType::kFloat8E4M3};
  LayerSpec e5m2 = e4m3;
  e5m2.dtype = DType::kFloat8E5M2;
  EXPECT_NE(FingerprintOf(e4m3), FingerprintOf(e5m2));
  const LayerSpec opaque = {.kind = KvKind::kOpaque, .bytes_per_block = 100};
  LayerSpec larger = opaque;
  larger.bytes_per_block = 101;
  EXPECT_EQ(FingerprintOf(opaque), FingerprintOf(opaque));
  EXPECT_NE(FingerprintOf(opaque), FingerprintOf(larger));
}

// Memory that an earlier version kept is recovered.
TEST(StampsFingerprintTest, IsWhatItWasBeforeThereWereOtherContents) {
  const LayerSpec layer = {.num_kv_heads = 2, .head_dim = 8, .dtype = DType::kBFloat16};
  std::string hex;
  for (const std::byte byte : FingerprintOf(layer).bytes) {
    absl::StrAppend(&hex, absl::Hex(static_cast<int>(byte), absl::kZeroPad2));
  }
  EXPECT_EQ(hex, "169ef681b95c4d5194a019562913890b7f3b5d982708c67d03b6e7abe58bb096");
}

class SlotStampsTest : public testing::Test {
 protected:
  ~SlotStampsTest() override { EXPECT_TRUE(SharedMemory::RemoveLeftover(name_).ok()); }

  SlotStamps::Options Options() const {
    return {.shm_name = name_,
            .fingerprint = kFingerprint,
            .num_slots = kSlots,
            .tokens_per_block = kTokensPerBlock,
            .note = 99};
  }
  static std::unique_ptr<SlotStamps> Open(const SlotStamps::Options& options) {
    auto stamps = SlotStamps::Create(options);
    EXPECT_TRUE(stamps.ok()) << stamps.status();
    (*stamps)->KeepName();
    return *std::move(stamps);
  }
  std::unique_ptr<SlotStamps> Open() const { return Open(Options()); }
  static void Put(SlotStamps& stamps, SlotIndex slot, const SlotStamp& stamp) {
    const SlotStamps::Version version = stamps.Invalidate(slot);
    ASSERT_TRUE(stamps.WriteBody(slot, version, stamp));
    stamps.WriteChecksum(slot);
    ASSERT_TRUE(stamps.Publish(slot, version));
  }

  const std::string name_ = absl::StrCat("/pagoda-test-", getpid(), "-slot-stamps");
};

// A content of any size that a stamp can have.
SlotStamp RandomStamp(std::mt19937_64& random) {
  const auto below = [&](uint32_t end) { return static_cast<uint32_t>(random() % end); };
  const auto text = [&](size_t most) {
    std::string out(below(2) == 0 ? most : below(static_cast<uint32_t>(most)), ' ');
    for (char& c : out) c = static_cast<char>(random());
    return out;
  };
  SlotStamp stamp;
  for (std::byte& byte : stamp.digest.bytes) byte = static_cast<std::byte>(random());
  for (std::byte& byte : stamp.parent.bytes) byte = static_cast<std::byte>(random());
  stamp.bytes_checksum = random();
  stamp.priority = Priority{static_cast<uint8_t>(below(101))};
  if (below(2) == 0) {
    stamp.name_space = {.cache_salt = text(kMaxCacheSaltBytes), .tenant = text(kMaxTenantBytes)};
    if (below(2) == 0) stamp.name_space->lora_id = random();
  }
  stamp.tokens.resize(below(2) == 0 ? kTokensPerBlock : 1 + below(kTokensPerBlock));
  for (TokenId& token : stamp.tokens) token = static_cast<TokenId>(random());
  if (below(2) == 0) {
    for (size_t i = 0; i < stamp.tokens.size(); ++i) {
      stamp.extras.push_back({.extra_id = random(),
                              .digest = {random(), random(), random(), random()},
                              .item_offset = static_cast<uint32_t>(random()),
                              .in_item = below(2) == 0});
    }
  }
  return stamp;
}

// A content with a client's key of any size.
SlotStamp KeyedStamp(std::mt19937_64& random) {
  SlotStamp stamp = RandomStamp(random);
  std::string bytes(1 + random() % ClientKey::kMaxBytes, ' ');
  for (char& c : bytes) c = static_cast<char>(random());
  const ClientKey key = *ClientKey::Make(bytes);
  stamp.tokens.assign(key.words().begin(), key.words().end());
  stamp.extras.clear();
  stamp.keyed = true;
  if (stamp.name_space.has_value()) stamp.name_space->keyed = true;
  return stamp;
}

// This also holds if a block has fewer tokens than a key has words.
TEST_F(SlotStampsTest, AKeyIsFoundAsItWasWritten) {
  std::mt19937_64 random(2);
  SlotStamps::Options options = Options();
  options.tokens_per_block = 1;
  const auto stamps = Open(options);
  for (int round = 0; round < 200; ++round) {
    const SlotStamp written = KeyedStamp(random);
    Put(*stamps, SlotIndex{0}, written);
    const auto found = stamps->Read(SlotIndex{0});
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_EQ(**found, written);
  }
}

TEST_F(SlotStampsTest, AStampIsFoundAsItWasWrittenByTheNextOwner) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 200; ++round) {
    std::vector<SlotStamp> written;
    {
      const auto stamps = Open();
      EXPECT_EQ(stamps->adopted(), round > 0);
      for (uint32_t slot = 0; slot < kSlots; ++slot) {
        written.push_back(RandomStamp(random));
        Put(*stamps, SlotIndex{slot}, written.back());
      }
    }
    const auto stamps = Open();
    ASSERT_TRUE(stamps->adopted()) << stamps->fresh_because();
    for (uint32_t slot = 0; slot < kSlots; ++slot) {
      const auto read = stamps->Read(SlotIndex{slot});
      ASSERT_TRUE(read.ok()) << read.status();
      ASSERT_TRUE(read->has_value());
      EXPECT_EQ(**read, written[slot]);
    }
  }
}

TEST_F(SlotStampsTest, NoSlotHasAStampInTheBeginning) {
  const auto stamps = Open();
  for (uint32_t slot = 0; slot < kSlots; ++slot) {
    EXPECT_FALSE(stamps->IsValid(SlotIndex{slot}));
    const auto read = stamps->Read(SlotIndex{slot});
    ASSERT_TRUE(read.ok());
    EXPECT_FALSE(read->has_value());
  }
}

TEST_F(SlotStampsTest, ASlotThatWasInvalidatedMeanwhileIsNotPublished) {
  std::mt19937_64 random(2);
  const auto stamps = Open();
  const SlotIndex slot{3};
  const SlotStamps::Version version = stamps->Invalidate(slot);
  ASSERT_TRUE(stamps->WriteBody(slot, version, RandomStamp(random)));
  stamps->WriteChecksum(slot);
  const SlotStamps::Version next = stamps->Invalidate(slot);
  EXPECT_NE(next, version);
  EXPECT_FALSE(stamps->Publish(slot, version));
  EXPECT_FALSE(stamps->IsValid(slot));
  EXPECT_FALSE(stamps->WriteBody(slot, version, RandomStamp(random)));
  // The body belongs to the earlier version.
  EXPECT_TRUE(stamps->Publish(slot, next));
  EXPECT_EQ(stamps->Read(slot).status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(SlotStampsTest, AStampInAnotherSlotsPlaceDoesNotCount) {
  std::mt19937_64 random(3);
  const auto stamps = Open();
  Put(*stamps, SlotIndex{1}, RandomStamp(random));
  Put(*stamps, SlotIndex{2}, RandomStamp(random));
  const size_t stride = (stamps->bytes().size() - 4096) / kSlots;
  std::memcpy(&stamps->bytes()[4096 + 2 * stride], &stamps->bytes()[4096 + stride], stride);
  EXPECT_TRUE(stamps->Read(SlotIndex{1}).ok());
  EXPECT_EQ(stamps->Read(SlotIndex{2}).status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(SlotStampsTest, AStampThatIsTooLargeIsRefused) {
  const auto stamps = Open();
  const SlotIndex slot{0};
  const SlotStamps::Version version = stamps->Invalidate(slot);
  EXPECT_FALSE(stamps->WriteBody(
      slot, version,
      {.name_space = NamespaceKey{.cache_salt = std::string(1 << 16, 's')}, .tokens = {1}}));
  EXPECT_TRUE(stamps->IsOpen(slot, version));
}

TEST_F(SlotStampsTest, StampsOfAnotherCacheAreForgottenWithAReason) {
  std::mt19937_64 random(4);
  const auto reason = [&](const SlotStamps::Options& options) {
    Put(*Open(), SlotIndex{0}, RandomStamp(random));
    const auto stamps = Open(options);
    EXPECT_FALSE(stamps->adopted());
    for (uint32_t slot = 0; slot < options.num_slots; ++slot) {
      EXPECT_FALSE(stamps->IsValid(SlotIndex{slot}));
    }
    return stamps->fresh_because();
  };
  SlotStamps::Options options = Options();
  options.fingerprint.bytes[31] = std::byte{1};
  EXPECT_EQ(reason(options), "the stamps are of another cache, model or layout");
  options = Options();
  options.num_slots = kSlots + 1;
  EXPECT_EQ(reason(options), "no stamps of this size were left");
  // Fewer slots with more tokens, in the same number of bytes.
  options = Options();
  options.num_slots = 1;
  while (SlotStamps::SizeBytes(1, options.tokens_per_block) <
         SlotStamps::SizeBytes(kSlots, kTokensPerBlock)) {
    ++options.tokens_per_block;
  }
  ASSERT_EQ(SlotStamps::SizeBytes(1, options.tokens_per_block),
            SlotStamps::SizeBytes(kSlots, kTokensPerBlock));
  EXPECT_EQ(reason(options), absl::StrCat("the stamps are of 5 slots of 16 tokens, not 1 of ",
                                          options.tokens_per_block));
}

TEST_F(SlotStampsTest, DamagedForeignAndEmptyMemoryHoldsNoStamps) {
  std::mt19937_64 random(5);
  const auto reason_after = [&](const std::function<void(absl::Span<std::byte>)>& damage) {
    {
      const auto before = Open();
      Put(*before, SlotIndex{0}, RandomStamp(random));
      damage(before->bytes());
    }
    const auto stamps = Open();
    EXPECT_FALSE(stamps->IsValid(SlotIndex{0})) << stamps->fresh_because();
    return stamps->fresh_because();
  };
  EXPECT_EQ(reason_after([](auto bytes) { std::memset(bytes.data(), 0, bytes.size()); }),
            "the memory that was left holds no stamps");
  EXPECT_EQ(reason_after([&](auto bytes) {
              for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
            }),
            "the memory that was left holds no stamps");
  EXPECT_EQ(reason_after([](auto bytes) { bytes[20] ^= std::byte{4}; }),
            "the header of the stamps is damaged");
  EXPECT_EQ(reason_after([](auto bytes) { bytes[8] ^= std::byte{4}; }),
            "the header of the stamps is damaged");
}

TEST_F(SlotStampsTest, PeekSaysWhatAnOwnerWroteDown) {
  EXPECT_FALSE(SlotStamps::Peek(name_).has_value());
  Open();
  const auto peeked = SlotStamps::Peek(name_);
  ASSERT_TRUE(peeked.has_value());
  EXPECT_EQ(peeked->num_slots, kSlots);
  EXPECT_EQ(peeked->note, 99u);
}

// Made with Python's hashlib from the documented bytes.
TEST(ContentDigestTest, MatchesTheDocumentedBytes) {
  const auto hex = [](const ContentDigest& digest) {
    std::string out;
    for (const std::byte byte : digest.bytes) {
      absl::StrAppend(&out, absl::Hex(static_cast<uint8_t>(byte), absl::kZeroPad2));
    }
    return out;
  };
  ContentDigester digester;
  const ContentDigest root =
      digester.OfNamespace({.lora_id = 7, .cache_salt = "salt", .tenant = "acme"});
  EXPECT_EQ(hex(root), "1d39cabf1da3abba4a42bcbcd076fcd2da038d3bc0049872529428f5ba191212");
  const std::vector<TokenId> first = {1, 2, 70000};
  const ContentDigest block = digester.OfBlock(root, {first, {}});
  EXPECT_EQ(hex(block), "cdf60e9be9398fcf84afee2fdc81ce7cb582ade95549ae75d15d67a61e279adb");
  const std::vector<TokenId> tokens = {5, 6};
  const std::vector<TokenExtra> extras = {
      {.extra_id = 9}, {.digest = {1, 2, 3, 4}, .item_offset = 8, .in_item = true}};
  EXPECT_EQ(hex(digester.OfBlock(block, {tokens, extras})),
            "fece143ee537ceefb09e5f12723387c485c23e7b781c2c8593d8dcc98dc08c4c");
  const std::vector<TokenExtra> nothing(2);
  EXPECT_EQ(digester.OfBlock(block, {tokens, nothing}), digester.OfBlock(block, {tokens, {}}));
}

}  // namespace
}  // namespace pagoda
