// The memory of sequences beside their blocks. Forks share it, and it is bounded.
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "base/error.h"
#include "manager/accounts/sequence_accounts.h"
#include "manager/block_manager.h"
#include "manager/cache_lists.h"
#include "manager/sequences/cached_prefixes.h"
#include "manager/sequences/running_sequences.h"
#include "manager/tree/sequence.h"
#include "tests/manager/fixtures/host_tiers.h"
#include "tests/manager/fixtures/prompt_of.h"
#include "tests/manager/fixtures/testing.h"

namespace pagoda {
namespace {

constexpr TenantId kRed{1}, kBlue{2};
constexpr uint32_t kTokensPerBlock = 4;
constexpr uint32_t kBlocks = 8192;

class SequenceMemoryTest : public ::testing::Test {
 protected:
  void Make(std::vector<TenantOptions> tenants, SequenceAccounts::Limits limits, uint32_t lower = 0,
            uint32_t blocks = kBlocks) {
    core_ = *BlockManager::Create({.layout = TinyLayout(kTokensPerBlock),
                                   .tiers = HostTiers({blocks}, {lower}),
                                   .epoch = Epoch{1},
                                   .tenants = std::move(tenants),
                                   .sequence_limits = limits});
  }
  SessionId Open(TenantId tenant = kDefaultTenant) {
    return core_->OpenSession("test", absl::InfiniteDuration(), now_, tenant)->ref.id;
  }
  absl::StatusOr<OperationResult> Run(SessionId session, const Operation& operation) {
    return core_->Execute(session, operation, now_);
  }
  void FinishCopies() {
    for (const Order& copy : core_->TakeOrders()) {
      core_->Complete(copy.lane, copy.ticket, absl::OkStatus(), now_);
    }
  }
  TenantUsage Usage(TenantId tenant) const { return core_->lists().TenantUses()[tenant.value()]; }
  static std::vector<TokenId> Range(uint32_t count) {
    std::vector<TokenId> tokens(count);
    std::iota(tokens.begin(), tokens.end(), 1);
    return tokens;
  }
  // A prompt with everything that a client can make long, and capacity for its first block only.
  static AddSequence LongPrompt(SequenceId name, uint32_t tokens) {
    AddSequence add{.sequence = name, .tokens = Range(tokens), .reserved_tokens = kTokensPerBlock};
    add.extra_token_ids.assign(tokens, 7);
    for (uint32_t i = 0; i < tokens; ++i) {
      add.retention.ranges.push_back(
          {.token_start = i, .token_end = i + 1, .retention = {.priority = Priority{50}}});
    }
    return add;
  }

  absl::Time now_ = absl::UnixEpoch();
  std::unique_ptr<BlockManager> core_;
};

// Bytes in use on the heap. A sanitizer's heap reports nothing.
size_t HeapBytes() { return mallinfo2().uordblks; }
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kHeapTells = false;
#else
constexpr bool kHeapTells = true;
#endif

TEST_F(SequenceMemoryTest, AForkCostsNothingForEachToken) {
  constexpr uint32_t kForks = 1000, kTokens = 20'000;
  Make({}, {});
  const SessionId session = Open();
  ASSERT_TRUE(Run(session, LongPrompt(SequenceId{1}, kTokens)).ok());
  // The first fork stores the tokens that are named and not computed, for all later forks.
  ASSERT_TRUE(Run(session, ForkSequence{SequenceId{1}, SequenceId{2}}).ok());
  const size_t heap = HeapBytes();
  const uint64_t bytes = Usage(kDefaultTenant).sequence_bytes;
  for (uint32_t i = 0; i < kForks; ++i) {
    ASSERT_TRUE(Run(session, ForkSequence{SequenceId{1 + i % 2}, SequenceId{3 + i}}).ok());
  }
  // Tokens, extra ids and ranges of one copy are over 1.5 MB.
  EXPECT_LT(Usage(kDefaultTenant).sequence_bytes - bytes, kForks * 2000);
  if (kHeapTells) {
    EXPECT_LT(HeapBytes() - heap, kForks * 2000);
  }
  core_->CheckInvariants();
}

TEST_F(SequenceMemoryTest, WhatIsChargedIsAboutWhatTheHeapHolds) {
  if (!kHeapTells) GTEST_SKIP() << "this heap does not tell what it holds";
  Make({}, {});
  const SessionId session = Open();
  ASSERT_TRUE(Run(session, LongPrompt(SequenceId{1}, 10)).ok());
  const size_t heap = HeapBytes();
  const uint64_t bytes = Usage(kDefaultTenant).sequence_bytes;
  for (uint64_t i = 2; i < 100; ++i) {
    ASSERT_TRUE(Run(session, LongPrompt(SequenceId{i}, 5000)).ok());
    ASSERT_TRUE(Run(session, ForkSequence{SequenceId{i}, SequenceId{i + 1000}}).ok());
  }
  const double charged = static_cast<double>(Usage(kDefaultTenant).sequence_bytes - bytes);
  const double held = static_cast<double>(HeapBytes() - heap);
  EXPECT_GT(charged, 0.8 * held);
  EXPECT_LT(charged, 1.3 * held);
}

// A TokenExtra takes 56 bytes: for an image of one token it would be 5.6 MB.
TEST_F(SequenceMemoryTest, AnImageCostsNothingForTheTokensBesideIt) {
  constexpr uint32_t kTokens = 100'000;
  Make({}, {}, 0, kTokens / kTokensPerBlock);
  const SessionId session = Open();
  AddSequence add{.sequence = SequenceId{1}, .tokens = Range(kTokens)};
  ASSERT_TRUE(Run(session, add).ok());
  const uint64_t bare_bytes = Usage(kDefaultTenant).sequence_bytes;
  const size_t heap = HeapBytes();
  ASSERT_TRUE(Run(session, FreeSequence{SequenceId{1}}).ok());
  add.multimodal_items = {
      {.digest = {1, 2, 3, 4}, .token_start = 50'001, .token_count = 2, .item_offset = 0}};
  ASSERT_TRUE(Run(session, add).ok());
  EXPECT_LT(Usage(kDefaultTenant).sequence_bytes, bare_bytes + 100);
  if (kHeapTells) {
    EXPECT_LT(HeapBytes(), heap + 10'000);
  }
  // The blocks with the item are published with it, and the others without.
  ASSERT_TRUE(
      Run(session, CommitTokens{.sequence = SequenceId{1}, .computed_tokens = kTokens}).ok());
  EXPECT_EQ(core_->prefixes().Match(PromptOf({}, add.tokens)), 50'001u);
  EXPECT_EQ(core_->prefixes().Match(
                {.name_space = {}, .tokens = add.tokens, .multimodal_items = add.multimodal_items},
                nullptr),
            kTokens - 1);
  core_->CheckInvariants();
}

TEST_F(SequenceMemoryTest, WhatForksShareIsChargedOnceAndGivenBackByTheLast) {
  Make({}, {});
  const SessionId session = Open();
  ASSERT_TRUE(Run(session, LongPrompt(SequenceId{1}, 1000)).ok());
  const uint64_t one = Usage(kDefaultTenant).sequence_bytes;
  EXPECT_GT(one, 1000 * (sizeof(TokenId) + sizeof(uint64_t)));
  for (uint64_t i = 2; i <= 10; ++i) {
    ASSERT_TRUE(Run(session, ForkSequence{SequenceId{1}, SequenceId{i}}).ok());
  }
  EXPECT_EQ(Usage(kDefaultTenant).sequences, 10u);
  for (uint64_t i = 1; i <= 9; ++i) ASSERT_TRUE(Run(session, FreeSequence{SequenceId{i}}).ok());
  EXPECT_GT(Usage(kDefaultTenant).sequence_bytes, 1000 * (sizeof(TokenId) + sizeof(uint64_t)))
      << "the last fork still has it";
  ASSERT_TRUE(Run(session, FreeSequence{SequenceId{10}}).ok());
  EXPECT_EQ(Usage(kDefaultTenant).sequence_bytes, 0u);
  EXPECT_EQ(Usage(kDefaultTenant).sequences, 0u);
}

TEST_F(SequenceMemoryTest, TablesAreChargedAsTheyGrowAndShrink) {
  Make({}, {});
  const SessionId session = Open();
  const auto bytes = [&] { return Usage(kDefaultTenant).sequence_bytes; };
  ASSERT_TRUE(Run(session, AddSequence{.sequence = SequenceId{1}, .tokens = Range(4)}).ok());
  const uint64_t small = bytes();
  ASSERT_TRUE(Run(session, AppendTokens{.sequence = SequenceId{1}, .tokens = Range(4000)}).ok());
  EXPECT_EQ(bytes() - small, 1000 * (sizeof(BlockHandle) + sizeof(BlockId)));
  ASSERT_TRUE(Run(session, TruncateSequence{SequenceId{1}, 4}).ok());
  EXPECT_EQ(bytes(), small);
  ASSERT_TRUE(Run(session, ReserveTokens{.sequence = SequenceId{1}, .count = 4}).ok());
  EXPECT_EQ(bytes() - small, sizeof(BlockHandle) + sizeof(BlockId));
}

// --- Limits ---

TEST_F(SequenceMemoryTest, ATenantsSequencesAreBoundedAndAnotherGetsItsPart) {
  Make({{.name = "red"}, {.name = "blue"}}, {.max_sequences = 60});
  const SessionId red = Open(kRed), blue = Open(kBlue);
  ASSERT_TRUE(Run(red, AddSequence{.sequence = SequenceId{1}, .tokens = Range(4)}).ok());
  absl::Status refused;
  uint64_t made = 1;
  for (; made < 100 && refused.ok(); ++made) {
    refused = Run(red, ForkSequence{SequenceId{1}, SequenceId{made + 1}}).status();
  }
  EXPECT_EQ(ReasonOf(refused), Reason::kTooManySequences) << refused;
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted) << "to be tried again";
  EXPECT_EQ(Usage(kRed).sequences, 40u) << "half is set aside for three";
  EXPECT_EQ(Usage(kRed).max_sequences, 40u);
  const AddSequence more{.sequence = SequenceId{500}, .tokens = Range(4)};
  EXPECT_EQ(ReasonOf(Run(red, more).status()), Reason::kTooManySequences);
  for (uint64_t i = 1; i <= 10; ++i) {
    EXPECT_TRUE(Run(blue, AddSequence{.sequence = SequenceId{i}, .tokens = Range(4)}).ok()) << i;
  }
  ASSERT_TRUE(Run(red, FreeSequence{SequenceId{1}}).ok());
  EXPECT_TRUE(Run(red, more).ok());
  core_->CheckInvariants();
}

TEST_F(SequenceMemoryTest, ATenantMayHaveALowerLimit) {
  Make({{.name = "red", .max_sequences = 2, .max_sequence_bytes = 10'000}, {.name = "blue"}}, {});
  const SessionId red = Open(kRed);
  EXPECT_EQ(Usage(kRed).max_sequences, 2u);
  EXPECT_EQ(Usage(kRed).max_sequence_bytes, 10'000u);
  ASSERT_TRUE(Run(red, AddSequence{.sequence = SequenceId{1}, .tokens = Range(4)}).ok());
  ASSERT_TRUE(Run(red, ForkSequence{SequenceId{1}, SequenceId{2}}).ok());
  EXPECT_EQ(ReasonOf(Run(red, ForkSequence{SequenceId{1}, SequenceId{3}}).status()),
            Reason::kTooManySequences);
  EXPECT_EQ(
      ReasonOf(Run(red, AppendTokens{.sequence = SequenceId{1}, .tokens = Range(4000)}).status()),
      Reason::kInvalidCount)
      << "one sequence alone may not keep so much, ever";
}

TEST_F(SequenceMemoryTest, WhatATenantsSequencesKeepIsBoundedAndAnotherGetsItsPart) {
  constexpr uint64_t kBytes = 600'000;
  Make({{.name = "red"}, {.name = "blue"}}, {.max_bytes = kBytes});
  const SessionId red = Open(kRed), blue = Open(kBlue);
  absl::Status refused;
  for (uint64_t i = 1; i < 100 && refused.ok(); ++i) {
    refused = Run(red, LongPrompt(SequenceId{i}, 500)).status();
  }
  EXPECT_EQ(ReasonOf(refused), Reason::kSequenceBytesExhausted) << refused;
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted) << "to be tried again";
  EXPECT_LE(Usage(kRed).sequence_bytes, kBytes / 2 + kBytes / 6);
  const auto growing = Run(red, AppendTokens{.sequence = SequenceId{1}, .tokens = Range(20'000)});
  EXPECT_EQ(ReasonOf(growing.status()), Reason::kSequenceBytesExhausted) << growing.status();
  EXPECT_EQ(ReasonOf(Run(red, LongPrompt(SequenceId{200}, 20'000)).status()), Reason::kInvalidCount)
      << "more than may ever be";
  EXPECT_TRUE(Run(blue, LongPrompt(SequenceId{1}, 500)).ok());
  ASSERT_TRUE(Run(red, FreeSequence{SequenceId{1}}).ok());
  EXPECT_TRUE(Run(red, LongPrompt(SequenceId{1}, 500)).ok());
  core_->CheckInvariants();
}

// Waiting for others helps only if others keep something.
TEST_F(SequenceMemoryTest, WhatASequenceAloneCannotHaveIsNotToBeTriedAgain) {
  constexpr uint64_t kSpare = 1000;
  const auto grow = ReserveTokens{.sequence = SequenceId{1}, .count = 4 * kSpare};
  const auto fork = ForkSequence{SequenceId{1}, SequenceId{9}};
  // Extra ids; tokens without a place; retention ranges.
  AddSequence ids = LongPrompt(SequenceId{1}, 5000), waiting = ids, wishes = ids;
  ids.retention = waiting.retention = {};
  waiting.extra_token_ids = wishes.extra_token_ids = {};
  for (const AddSequence& add : {ids, waiting, wishes}) {
    Make({{.name = "red"}}, {});
    ASSERT_TRUE(Run(Open(kRed), add).ok());
    const uint64_t kept = Usage(kRed).sequence_bytes;
    Make({{.name = "red", .max_sequence_bytes = kept + kSpare}}, {});
    SessionId red = Open(kRed);
    ASSERT_TRUE(Run(red, add).ok());
    EXPECT_EQ(ReasonOf(Run(red, grow).status()), Reason::kInvalidCount);
    EXPECT_EQ(ReasonOf(Run(red, fork).status()), Reason::kInvalidCount);
    // It does not fit beside another sequence, but can fit later.
    Make({{.name = "red", .max_sequence_bytes = 2 * kept + kSpare}}, {});
    red = Open(kRed);
    AddSequence other = add;
    other.sequence = SequenceId{2};
    ASSERT_TRUE(Run(red, add).ok());
    ASSERT_TRUE(Run(red, other).ok());
    EXPECT_EQ(ReasonOf(Run(red, grow).status()), Reason::kSequenceBytesExhausted);
    EXPECT_EQ(ReasonOf(Run(red, fork).status()), Reason::kSequenceBytesExhausted);
    ASSERT_TRUE(Run(red, FreeSequence{SequenceId{2}}).ok());
    EXPECT_TRUE(Run(red, grow).ok());
  }
}

// Every fork that is freed in a step leaves a deferred release for each block that it shared.
TEST_F(SequenceMemoryTest, DeferredReleasesOfFreedForksAreBounded) {
  constexpr uint32_t kHeld = 8;
  Make({}, {});
  const SessionId session = Open();
  ASSERT_TRUE(
      Run(session, AddSequence{.sequence = SequenceId{1}, .tokens = Range(4 * kHeld)}).ok());
  ASSERT_TRUE(
      Run(session, CommitTokens{.sequence = SequenceId{1}, .computed_tokens = 4 * kHeld}).ok());
  for (uint64_t step = 1; step <= 2000; ++step) {
    ASSERT_TRUE(core_->BeginBatch(session, {.step = step}, now_).ok());
    ASSERT_TRUE(Run(session, ForkSequence{SequenceId{1}, SequenceId{2}}).ok());
    ASSERT_TRUE(Run(session, FreeSequence{SequenceId{2}}).ok());
  }
  const auto deferred = [&] {
    return core_->lists().Sessions(session, 1, now_).at(0).deferred_blocks;
  };
  EXPECT_LT(deferred(), 300u);
  core_->CheckInvariants();
  // The last release of each block counts: nothing is released before its step is completed.
  ASSERT_TRUE(core_->BeginBatch(session, {.step = 2001}, now_).ok());
  ASSERT_TRUE(Run(session, FreeSequence{SequenceId{1}}).ok());
  ASSERT_TRUE(core_->BeginBatch(session, {.step = 2002, .completed_step = 2000}, now_).ok());
  EXPECT_EQ(deferred(), kHeld);
  EXPECT_EQ(core_->Stats().windows[0].tiers[0].in_flight, kHeld);
  ASSERT_TRUE(core_->BeginBatch(session, {.step = 2002, .completed_step = 2001}, now_).ok());
  EXPECT_EQ(deferred(), 0u);
  EXPECT_EQ(core_->Stats().windows[0].tiers[0].cached, kHeld);
  core_->CheckInvariants();
}

// --- What is shared is as if it were copied ---

TEST_F(SequenceMemoryTest, AForkNamesTheTokensThatItsParentHasNotComputed) {
  Make({}, {});
  const SessionId session = Open();
  const std::vector<TokenId> prompt = Range(30);
  // Ten tokens have slots, of which six are computed; twenty wait.
  ASSERT_TRUE(
      Run(session, AddSequence{.sequence = SequenceId{1}, .tokens = prompt, .reserved_tokens = 10})
          .ok());
  ASSERT_TRUE(Run(session, CommitTokens{.sequence = SequenceId{1}, .computed_tokens = 6}).ok());
  for (uint64_t fork = 2; fork <= 4; ++fork) {
    ASSERT_TRUE(Run(session, ForkSequence{SequenceId{1}, SequenceId{fork}}).ok());
  }
  // First the parent continues, then a fork, then a fork of that fork.
  ASSERT_TRUE(Run(session, ReserveTokens{.sequence = SequenceId{1}, .count = 5}).ok());
  ASSERT_TRUE(Run(session, ReserveTokens{.sequence = SequenceId{2}, .count = 9}).ok());
  ASSERT_TRUE(Run(session, CommitTokens{.sequence = SequenceId{2}, .computed_tokens = 11}).ok());
  ASSERT_TRUE(Run(session, ForkSequence{SequenceId{2}, SequenceId{5}}).ok());
  ASSERT_TRUE(Run(session, TruncateSequence{SequenceId{3}, 20}).ok());
  core_->CheckInvariants();
  for (const uint64_t name : {1, 2, 3, 4, 5}) {
    const Sequence& sequence = **core_->sequences().FindSequence(session, SequenceId{name});
    const uint32_t tokens = sequence.token_count;
    EXPECT_EQ(tokens, name == 3 ? 20u : 30u);
    ASSERT_TRUE(Run(session, ReserveTokens{.sequence = SequenceId{name},
                                           .count = tokens - sequence.reserved_tokens})
                    .ok());
    ASSERT_TRUE(
        Run(session, CommitTokens{.sequence = SequenceId{name}, .computed_tokens = tokens}).ok());
    ASSERT_TRUE(Run(session, FreeSequence{SequenceId{name}}).ok());
    const std::vector<TokenId> cached(prompt.begin(), prompt.begin() + tokens);
    std::vector<TokenId> asked = cached;
    asked.push_back(0);
    EXPECT_EQ(core_->prefixes().Match(PromptOf({}, asked)), tokens) << name;
    core_->CheckInvariants();
  }
  FinishCopies();
  EXPECT_EQ(core_->Stats().windows[0].tiers[0].cached, 8u) << "each has the same tokens";
}

TEST_F(SequenceMemoryTest, ForksHaveTheExtraIdsOfTheirOwnCuts) {
  Make({}, {});
  const SessionId session = Open();
  std::vector<uint64_t> ids(14);
  std::iota(ids.begin(), ids.end(), 100);
  ASSERT_TRUE(
      Run(session,
          AddSequence{.sequence = SequenceId{1}, .tokens = Range(14), .extra_token_ids = ids})
          .ok());
  for (uint64_t fork = 2; fork <= 4; ++fork) {
    ASSERT_TRUE(Run(session, ForkSequence{SequenceId{1}, SequenceId{fork}}).ok());
  }
  const struct {
    uint64_t name;
    std::vector<uint32_t> cuts;
  } cases[] = {{1, {}}, {2, {7}}, {3, {7, 6}}, {4, {10, 4}}};
  for (const auto& [name, cuts] : cases) {
    uint32_t kept = 14;
    for (const uint32_t cut : cuts) {
      ASSERT_TRUE(Run(session, TruncateSequence{SequenceId{name}, cut}).ok());
      kept = cut;
    }
    // The tokens behind a cut have no extra ids.
    const std::vector<TokenId> behind(16 - kept, 9);
    ASSERT_TRUE(Run(session, AppendTokens{.sequence = SequenceId{name}, .tokens = behind}).ok());
    ASSERT_TRUE(
        Run(session, CommitTokens{.sequence = SequenceId{name}, .computed_tokens = 16}).ok());
    std::vector<TokenId> asked = Range(kept);
    asked.resize(16, 9);
    asked.push_back(0);
    std::vector<uint64_t> asked_ids(ids.begin(), ids.begin() + kept);
    asked_ids.resize(17);
    EXPECT_EQ(core_->prefixes().Match(
                  {.name_space = {}, .tokens = asked, .extra_token_ids = asked_ids}, nullptr),
              16u)
        << name;
    core_->CheckInvariants();
  }
  for (uint64_t name = 1; name <= 4; ++name) {
    ASSERT_TRUE(Run(session, FreeSequence{SequenceId{name}}).ok());
  }
  EXPECT_EQ(Usage(kDefaultTenant).sequence_bytes, 0u);
}

// --- What the slots of a fork wait for ---

TEST_F(SequenceMemoryTest, AForkAndADescriptionTellTheTicketThatTheirSlotsWaitFor) {
  Make({}, {}, /*lower=*/8, /*blocks=*/16);
  const SessionId session = Open();
  const std::vector<TokenId> prompt = Range(12);
  ASSERT_TRUE(Run(session, AddSequence{.sequence = SequenceId{1}, .tokens = prompt}).ok());
  ASSERT_TRUE(Run(session, CommitTokens{.sequence = SequenceId{1}, .computed_tokens = 12}).ok());
  ASSERT_TRUE(Run(session, FreeSequence{SequenceId{1}}).ok());
  ASSERT_TRUE(Run(session, OffloadPrefix{.tokens = prompt}).ok());
  FinishCopies();
  const auto added = Run(session, AddSequence{.sequence = SequenceId{2}, .tokens = prompt});
  const Ticket coming = std::get<AddedSequence>(*added).ready;
  ASSERT_GT(coming, core_->completed_ticket()) << "the match comes up";
  const auto fork = [&](uint64_t name) {
    return std::get<ForkedSequence>(*Run(session, ForkSequence{SequenceId{2}, SequenceId{name}}))
        .ready;
  };
  const auto describe = [&](uint64_t name) {
    return std::get<DescribedSequence>(*Run(session, DescribeSequence{SequenceId{name}})).ready;
  };
  EXPECT_EQ(fork(3), coming);
  EXPECT_EQ(describe(2), coming);
  EXPECT_EQ(describe(3), coming);
  FinishCopies();
  EXPECT_EQ(fork(4), Ticket{});
  EXPECT_EQ(describe(2), Ticket{});
}

}  // namespace
}  // namespace pagoda
