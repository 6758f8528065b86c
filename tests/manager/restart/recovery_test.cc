#include "manager/restart/recovery.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "manager/restart/slot_checksum.h"
#include "manager/restart/slot_stamper.h"
#include "tests/manager/restart/warm_cache.h"

namespace pagoda {
namespace {

using Step = SlotStamper::Step;

class RecoveryTest : public testing::Test {
 protected:
  ~RecoveryTest() override { WarmCache::Remove(instance_); }

  const std::string instance_ = absl::StrCat("test-", getpid(), "-recovery");
};

TEST_F(RecoveryTest, FindsExactlyWhatTheModelHas) {
  uint64_t recovered = 0, holes = 0;
  CacheContent expected;
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    SCOPED_TRACE(seed);
    WarmCache cache(instance_, seed);
    const Recovery& recovery = cache.recovery();
    // The first cache finds no memory of an earlier one. If a later one does not, it was deleted.
    ASSERT_EQ(recovery.report.not_adopted.empty(), seed > 1) << Describe(recovery.report);
    ASSERT_EQ(WarmCache::Check(cache.pools(), recovery.windows), "");
    ASSERT_EQ(WarmCache::ContentOf(recovery.windows), expected);
    EXPECT_EQ(recovery.report.recovered, expected.size());
    recovered += recovery.report.recovered;
    holes += recovery.report.holes;
    for (int i = 0; i < 60; ++i) cache.Step();
    cache.Flush();
    EXPECT_EQ(cache.stamper().stats().pending, 0u);
    EXPECT_EQ(cache.stamper().stats().orphaned, 0u);
    expected = cache.Recoverable();
  }
  EXPECT_GT(recovered, 2000u);
  EXPECT_GT(holes, 20u);
}

// --- Kill points ---

// Works in shared memory until the stamper is at `step` for the `count`-th time, and dies there.
// Exit status 1: its first recovery was wrong; 2: it never reached that step.
[[noreturn]] void WorkAndDie(const std::string& instance, uint64_t seed, Step step, int count) {
  std::atomic<int> left = count;
  WarmCache cache(instance, seed, {.at_step = [&](Step at, uint32_t, SlotRef) {
                    if (at == step && left.fetch_sub(1) == 1) kill(getpid(), SIGKILL);
                  }});
  if (!WarmCache::Check(cache.pools(), cache.recovery().windows).empty()) _exit(1);
  for (int i = 0; i < 100'000; ++i) {
    cache.Step();
    if (i % 16 == 0) cache.Flush();
  }
  _exit(2);
}

class KillPointTest : public RecoveryTest, public testing::WithParamInterface<Step> {};

TEST_P(KillPointTest, WhatIsRecoveredHasTheBytesOfItsKey) {
  uint64_t recovered = 0;
  for (uint64_t round = 1; round <= 60; ++round) {
    SCOPED_TRACE(round);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) WorkAndDie(instance_, round, GetParam(), static_cast<int>(1 + round * 7 % 40));
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
        << (WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    WarmCache cache(instance_, round);
    ASSERT_EQ(WarmCache::Check(cache.pools(), cache.recovery().windows), "");
    EXPECT_EQ(cache.recovery().report.lost_by(RecoveryLoss::kDamagedStamp), 0u);
    EXPECT_EQ(cache.recovery().report.lost_by(RecoveryLoss::kWrongDigest), 0u);
    EXPECT_EQ(cache.recovery().report.lost_by(RecoveryLoss::kChangedBytes), 0u)
        << "a slot was written while its stamp was valid";
    recovered += cache.recovery().report.recovered;
  }
  EXPECT_GT(recovered, 300u) << "nearly everything was lost: the rounds say nothing";
}

std::string StepName(const testing::TestParamInfo<Step>& step) {
  constexpr std::array kNames = {"Invalidated", "BeforeChecksum", "BodyWritten", "BeforePublish",
                                 "Published"};
  return kNames[static_cast<size_t>(step.param)];
}

INSTANTIATE_TEST_SUITE_P(Steps, KillPointTest,
                         testing::Values(Step::kInvalidated, Step::kBeforeChecksum,
                                         Step::kBodyWritten, Step::kBeforePublish,
                                         Step::kPublished),
                         StepName);

// --- Damage ---

// A cache with everything stamped, whose memory can be damaged and repaired.
class DamageTest : public RecoveryTest {
 protected:
  DamageTest() {
    WarmCache cache(instance_, 11);
    for (int i = 0; i < 400; ++i) cache.Step();
    cache.Flush();
    expected_ = cache.Recoverable();
    const CacheLayout layout = WarmCache::Layout();
    for (const PoolMapping& mapping : cache.pools().Mappings()) {
      Keep(mapping.segments[0].shm_name);
    }
    num_pools_ = memories_.size();
    for (const WindowLayout& window : layout.windows()) {
      for (const Tier tier : {kPrimaryTier, Tier(1)}) {
        Keep(StampsName(instance_, window.window, tier));
      }
    }
  }

  void Keep(const std::string& name) {
    absl::StatusOr<SharedMemory> memory = SharedMemory::Open(name);
    ASSERT_TRUE(memory.ok()) << memory.status();
    images_.emplace_back(memory->bytes().begin(), memory->bytes().end());
    memories_.push_back(*std::move(memory));
  }
  void Mend() {
    for (size_t i = 0; i < memories_.size(); ++i) {
      std::memcpy(memories_[i].bytes().data(), images_[i].data(), images_[i].size());
    }
  }
  // The names can have new objects by now.
  void Reopen() {
    for (SharedMemory& memory : std::exchange(memories_, {})) {
      absl::StatusOr<SharedMemory> again = SharedMemory::Open(memory.name());
      ASSERT_TRUE(again.ok()) << again.status();
      memories_.push_back(*std::move(again));
    }
    Mend();
  }
  // Recovers as the next daemon would. Returns the error.
  std::string RecoverAndCheck(RecoveryReport* report) {
    auto pools =
        PoolSet::Create(WarmCache::Layout(), WarmCache::Slots(), instance_, MemoryLifetime::kKept);
    if (!pools.ok()) return std::string(pools.status().message());
    auto stamps = StampSet::Create(**pools, instance_);
    if (!stamps.ok()) return std::string(stamps.status().message());
    (*pools)->KeepNames();
    (*stamps)->KeepNames();
    const Recovery recovery = Recover(**pools, **stamps, {.num_threads = 1});
    *report = recovery.report;
    const CacheContent content = WarmCache::ContentOf(recovery.windows);
    if (!std::includes(expected_.begin(), expected_.end(), content.begin(), content.end())) {
      return "a block that was not there, or in another slot";
    }
    return WarmCache::Check(**pools, recovery.windows);
  }

  std::vector<SharedMemory> memories_;  // The pools, then the stamps.
  size_t num_pools_ = 0;
  std::vector<std::vector<std::byte>> images_;
  CacheContent expected_;
};

TEST_F(DamageTest, FlippedBitsNeverGiveAWrongBlock) {
  std::mt19937_64 random(12);
  const auto below = [&](uint64_t end) { return random() % end; };
  uint64_t recovered = 0, damaged = 0, changed = 0, foreign = 0;
  constexpr uint64_t kRounds = 10'000;
  for (uint64_t round = 0; round < kRounds; ++round) {
    for (uint64_t flips = 1 + below(3); flips > 0; --flips) {
      // Damages the pools and the stamps equally often, and sometimes a header, which is small.
      const bool in_pool = below(2) == 0;
      const size_t first = in_pool ? 0 : num_pools_;
      const size_t last = in_pool ? num_pools_ : memories_.size();
      const absl::Span<std::byte> bytes = memories_[first + below(last - first)].bytes();
      const bool in_header = !in_pool && below(20) == 0;
      const size_t begin = in_pool || in_header ? 0 : 4096;
      const size_t end = in_header ? 76 : bytes.size();
      bytes[begin + below(end - begin)] ^= static_cast<std::byte>(1u << below(8));
    }
    RecoveryReport report;
    const std::string wrong = RecoverAndCheck(&report);
    ASSERT_EQ(wrong, "") << "round " << round;
    recovered += report.recovered;
    damaged += report.lost_by(RecoveryLoss::kDamagedStamp);
    changed += report.lost_by(RecoveryLoss::kChangedBytes);
    foreign += report.not_adopted.size();
    Mend();
  }
  EXPECT_GT(recovered, kRounds * expected_.size() / 2) << "a flip loses a block, not the cache";
  EXPECT_GT(damaged, kRounds / 20);
  EXPECT_GT(changed, kRounds / 4);
  EXPECT_GT(foreign, kRounds / 50);
}

TEST_F(DamageTest, WhatWasNotRecoveredOnceIsNotLater) {
  // The bytes of a pool change, and change back after a start that has seen it.
  RecoveryReport report;
  for (std::byte& byte : memories_[0].bytes()) byte ^= std::byte{1};
  ASSERT_EQ(RecoverAndCheck(&report), "");
  EXPECT_GT(report.lost_by(RecoveryLoss::kChangedBytes), 0u);
  const uint64_t recovered = report.recovered;
  for (std::byte& byte : memories_[0].bytes()) byte ^= std::byte{1};
  ASSERT_EQ(RecoverAndCheck(&report), "");
  EXPECT_LE(report.recovered, recovered);  // A lost stamp can have told the content of a hole.
  EXPECT_EQ(report.found, recovered);
}

TEST_F(DamageTest, TruncatedAndForeignFilesAreNothingToRecover) {
  const size_t stamps = memories_.size() - num_pools_;
  for (size_t i = 0; i < memories_.size(); ++i) {
    SCOPED_TRACE(memories_[i].name());
    const auto cut = [&](off_t size) {
      const int fd = shm_open(memories_[i].name().c_str(), O_RDWR, 0);
      ASSERT_GE(fd, 0);
      ASSERT_EQ(ftruncate(fd, size), 0);
      close(fd);
    };
    RecoveryReport report;
    cut(static_cast<off_t>(images_[i].size() / 2));
    ASSERT_EQ(RecoverAndCheck(&report), "");
    EXPECT_EQ(report.not_adopted.size(), 1u) << Describe(report);
    EXPECT_LT(report.recovered, expected_.size());
    Reopen();
  }
  for (size_t i = 0; i < stamps; ++i) {
    const absl::Span<std::byte> bytes = memories_[num_pools_ + i].bytes();
    for (size_t b = 0; b < bytes.size(); ++b) bytes[b] = static_cast<std::byte>(b * 31);
  }
  RecoveryReport report;
  ASSERT_EQ(RecoverAndCheck(&report), "");
  EXPECT_EQ(report.found, 0u);
  EXPECT_EQ(report.not_adopted.size(), stamps);
}

// --- By hand ---

SlotChange Content(uint32_t w, SlotRef slot, uint32_t id, uint32_t parent,
                   std::vector<TokenId> tokens) {
  SlotContent content = {.block = {BlockId{id}, Generation{1}}, .tokens = std::move(tokens)};
  if (parent != kNoBlock.value()) content.parent = {BlockId{parent}, Generation{1}};
  return {.window_index = w, .slot = slot, .content = std::move(content)};
}

constexpr uint32_t kRoot = kNoBlock.value();
constexpr SlotRef Primary(uint32_t slot) { return {kPrimaryTier, SlotIndex{slot}}; }
constexpr SlotRef Lower(uint32_t slot) { return {Tier(1), SlotIndex{slot}}; }

// Stamps the changes told, and recovers them.
Recovery AfterTelling(const std::string& instance, std::vector<SlotChange> changes) {
  {
    WarmCache cache(instance, 1);
    cache.stamper().Apply(std::move(changes));
    cache.Flush();
  }
  return WarmCache(instance, 1).recovery();
}

TEST_F(RecoveryTest, ABlockWithoutItsParentIsDroppedUnderFullAttention) {
  const Recovery recovery = AfterTelling(instance_, {Content(1, Primary(0), 1, kRoot, {1, 1, 1, 1}),
                                                     Content(1, Primary(1), 2, 1, {2, 2, 2, 2}),
                                                     Content(1, Primary(2), 3, 2, {3, 3, 3, 3}),
                                                     {.window_index = 1, .slot = Primary(1)}});
  ASSERT_EQ(recovery.windows[1].blocks.size(), 1u);
  EXPECT_EQ(recovery.windows[1].blocks[0].slot, Primary(0));
  EXPECT_EQ(recovery.report.lost_by(RecoveryLoss::kUnreachable), 1u);
}

TEST_F(RecoveryTest, AHoleIsFilledWithTheContentThatAnotherWindowHas) {
  const Recovery recovery = AfterTelling(instance_, {Content(0, Primary(0), 1, kRoot, {1, 1, 1, 1}),
                                                     Content(0, Primary(1), 2, 1, {2, 2, 2, 2}),
                                                     Content(0, Primary(2), 3, 2, {3, 3, 3, 3}),
                                                     {.window_index = 0, .slot = Primary(0)},
                                                     {.window_index = 0, .slot = Primary(1)},
                                                     Content(1, Primary(0), 1, kRoot, {1, 1, 1, 1}),
                                                     Content(1, Primary(1), 2, 1, {2, 2, 2, 2})});
  ASSERT_EQ(recovery.windows[0].blocks.size(), 3u);
  EXPECT_EQ(recovery.windows[0].blocks[0].slot.slot, kNoSlot);
  EXPECT_EQ(recovery.windows[0].blocks[1].slot.slot, kNoSlot);
  EXPECT_EQ(recovery.windows[0].blocks[1].tokens, (std::vector<TokenId>{2, 2, 2, 2}));
  EXPECT_EQ(recovery.windows[0].blocks[1].parent, 0u);
  EXPECT_EQ(recovery.windows[0].blocks[2].slot, Primary(2));
  EXPECT_EQ(recovery.report.holes, 2u);
}

TEST_F(RecoveryTest, ASlidingBlockWhoseBeginningNobodyHasIsDropped) {
  const Recovery recovery = AfterTelling(instance_, {Content(0, Primary(0), 1, kRoot, {1, 1, 1, 1}),
                                                     Content(0, Primary(1), 2, 1, {2, 2, 2, 2}),
                                                     {.window_index = 0, .slot = Primary(0)}});
  EXPECT_TRUE(recovery.windows[0].blocks.empty());
  EXPECT_EQ(recovery.report.lost_by(RecoveryLoss::kUnreachable), 1u);
}

TEST_F(RecoveryTest, OfOneContentInBothTiersThePrimaryOneIsTaken) {
  const Recovery recovery =
      AfterTelling(instance_, {Content(1, Lower(3), 1, kRoot, {1, 1, 1, 1}),
                               Content(1, Primary(4), 2, kRoot, {1, 1, 1, 1})});
  ASSERT_EQ(recovery.windows[1].blocks.size(), 1u);
  EXPECT_EQ(recovery.windows[1].blocks[0].slot, Primary(4));
  EXPECT_EQ(recovery.report.lost_by(RecoveryLoss::kDuplicate), 1u);
}

// Rule 13.
TEST_F(RecoveryTest, NoBlockIsNearerThanItsParentUnderFullAttention) {
  const Recovery recovery = AfterTelling(
      instance_,
      {Content(1, Lower(0), 1, kRoot, {1, 1, 1, 1}), Content(1, Primary(1), 2, 1, {2, 2, 2, 2}),
       Content(1, Lower(2), 3, 2, {3, 3, 3, 3}), Content(1, Primary(3), 4, 1, {4, 4, 4, 4}),
       Content(1, Lower(4), 5, 1, {4, 4, 4, 4}), Content(1, Lower(5), 6, 5, {6, 6})});
  std::vector<SlotRef> slots;
  for (const RecoveredBlock& block : recovery.windows[1].blocks) slots.push_back(block.slot);
  EXPECT_EQ(slots, (std::vector{Lower(0), Lower(4), Lower(5)}));
  EXPECT_EQ(recovery.report.lost_by(RecoveryLoss::kNearerThanParent), 1u);
  EXPECT_EQ(recovery.report.lost_by(RecoveryLoss::kUnreachable), 1u);
  EXPECT_EQ(recovery.report.lost_by(RecoveryLoss::kDuplicate), 1u);
}

TEST_F(RecoveryTest, ATailHasNoChildren) {
  const Recovery recovery = AfterTelling(instance_, {Content(0, Primary(0), 1, kRoot, {1, 1}),
                                                     Content(0, Primary(1), 2, 1, {2, 2, 2, 2})});
  ASSERT_EQ(recovery.windows[0].blocks.size(), 1u);
  EXPECT_EQ(recovery.windows[0].blocks[0].tokens.size(), 2u);
  EXPECT_EQ(recovery.report.lost_by(RecoveryLoss::kUnreachable), 1u);
}

// Recovers once more what AfterTelling left.
RecoveryReport RecoverWith(const std::string& instance, const RecoveryOptions& options) {
  auto pools =
      PoolSet::Create(WarmCache::Layout(), WarmCache::Slots(), instance, MemoryLifetime::kKept);
  auto stamps = StampSet::Create(**pools, instance);
  return Recover(**pools, **stamps, options).report;
}

TEST_F(RecoveryTest, ARefusedNamespaceIsDroppedWithAllBelowIt) {
  SlotChange other = Content(1, Primary(2), 3, kRoot, {3, 3, 3, 3});
  other.content->name_space.tenant = "gone";
  AfterTelling(instance_, {Content(1, Primary(0), 1, kRoot, {1, 1, 1, 1}),
                           Content(1, Primary(1), 2, 1, {2, 2, 2, 2}), other,
                           Content(1, Primary(3), 4, 3, {4, 4, 4, 4})});
  const RecoveryReport report = RecoverWith(
      instance_, {.accepts = [](const NamespaceKey& name) { return name.tenant.empty(); }});
  EXPECT_EQ(report.recovered, 2u);
  EXPECT_EQ(report.lost_by(RecoveryLoss::kRefused), 1u);
  EXPECT_EQ(report.lost_by(RecoveryLoss::kUnreachable), 1u);
}

// Intact stamps with wrong content.
TEST_F(RecoveryTest, AStampWhoseDigestIsNotOfItsContentIsDropped) {
  {
    WarmCache cache(instance_, 1);
    SlotStamps& stamps = *cache.stamps().Find(1, kPrimaryTier);
    ContentDigester digester;
    const NamespaceKey ours = {.tenant = "ours"}, theirs = {.tenant = "theirs"};
    const std::vector<TokenId> tokens = {1, 2, 3, 4};
    const auto put = [&](uint32_t slot, const NamespaceKey& said, const NamespaceKey& digested,
                         const std::vector<TokenId>& digested_tokens) {
      const SlotStamps::Version version = stamps.Invalidate(SlotIndex{slot});
      const ContentDigest parent = digester.OfNamespace(digested);
      const SlotStamp stamp = {.digest = digester.OfBlock(parent, {digested_tokens, {}}),
                               .parent = parent,
                               .name_space = said,
                               .bytes_checksum = ChecksumSlot(cache.pools(), 1, Primary(slot)),
                               .tokens = tokens};
      ASSERT_TRUE(stamps.WriteBody(SlotIndex{slot}, version, stamp));
      stamps.WriteChecksum(SlotIndex{slot});
      ASSERT_TRUE(stamps.Publish(SlotIndex{slot}, version));
    };
    put(0, ours, ours, tokens);
    put(1, ours, ours, {1, 2, 3, 5});
    put(2, theirs, ours, tokens);
  }
  const RecoveryReport report = RecoverWith(instance_, {});
  EXPECT_EQ(report.recovered, 1u);
  EXPECT_EQ(report.lost_by(RecoveryLoss::kWrongDigest), 2u);
}

TEST_F(RecoveryTest, NoMoreHolesThanMayBe) {
  const auto tell = [&] {
    return AfterTelling(instance_, {Content(0, Primary(0), 1, kRoot, {1, 1, 1, 1}),
                                    Content(0, Primary(1), 2, 1, {2, 2, 2, 2}),
                                    Content(0, Primary(2), 3, 2, {3, 3, 3, 3}),
                                    {.window_index = 0, .slot = Primary(0)},
                                    {.window_index = 0, .slot = Primary(1)},
                                    Content(1, Primary(0), 1, kRoot, {1, 1, 1, 1}),
                                    Content(1, Primary(1), 2, 1, {2, 2, 2, 2})});
  };
  ASSERT_EQ(tell().report.recovered, 3u);
  EXPECT_EQ(RecoverWith(instance_, {.max_holes = 2}).recovered, 3u);
  const RecoveryReport report = RecoverWith(instance_, {.max_holes = 1});
  EXPECT_EQ(report.recovered, 2u);
  EXPECT_EQ(report.holes, 0u);
  EXPECT_EQ(report.lost_by(RecoveryLoss::kRefused), 1u);
}

TEST_F(RecoveryTest, ProgressEndsAtAllBytes) {
  {
    WarmCache cache(instance_, 3);
    for (int i = 0; i < 200; ++i) cache.Step();
    cache.Flush();
  }
  auto pools =
      PoolSet::Create(WarmCache::Layout(), WarmCache::Slots(), instance_, MemoryLifetime::kKept);
  ASSERT_TRUE(pools.ok());
  auto stamps = StampSet::Create(**pools, instance_);
  ASSERT_TRUE(stamps.ok());
  uint64_t last = 0, total = 0;
  const Recovery recovery =
      Recover(**pools, **stamps, {.num_threads = 3, .progress = [&](uint64_t done, uint64_t all) {
                                    EXPECT_GT(done, last);
                                    last = done;
                                    total = all;
                                  }});
  EXPECT_GT(recovery.report.recovered, 5u);
  EXPECT_EQ(last, total);
  EXPECT_EQ(total, recovery.report.checked_bytes);
}

}  // namespace
}  // namespace pagoda
