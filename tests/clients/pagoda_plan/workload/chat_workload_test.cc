#include "clients/pagoda_plan/workload/chat_workload.h"

#include <algorithm>
#include <cstddef>
#include <set>

#include "base/error.h"
#include "events/event_log.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "manager/accounts/sequence_accounts.h"
#include "manager/block_manager.h"
#include "manager/cache_lists.h"
#include "manager/shared_manager.h"
#include "tests/manager/fixtures/host_tiers.h"

namespace pagoda {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kTokensPerBlock = 4;

// A manager in this process, and a session for the workload.
class Cache {
 public:
  explicit Cache(uint32_t blocks, SequenceAccounts::Limits limits = {})
      : manager_(MakeCore(blocks, limits), &log_) {}

  std::unique_ptr<CacheClient> Open() { return *OpenLocalCacheClient(&manager_, "test"); }
  TierOccupancy occupancy() const {
    return manager_.Read(&BlockManager::Stats).windows[0].tiers[0];
  }
  const SharedManager& manager() const { return manager_; }
  uint64_t sequence_bytes() const {
    return manager_.Read(
        [](const BlockManager& core) { return core.lists().TenantUses().front().sequence_bytes; });
  }
  const EventLog& log() const { return log_; }

 private:
  static std::unique_ptr<BlockManager> MakeCore(uint32_t blocks, SequenceAccounts::Limits limits) {
    CacheSpec spec;
    spec.tokens_per_block = kTokensPerBlock;
    spec.layers.resize(1);
    spec.layers[0].num_kv_heads = 1;
    spec.layers[0].head_dim = 1;
    return *BlockManager::Create({.layout = *CacheLayout::Create(spec),
                                  .tiers = HostTiers({blocks}),
                                  .pool_mappings = {},
                                  .epoch = {},
                                  .sequence_limits = limits});
  }

  EventLog log_{{}};
  SharedManager manager_;
};

// Each conversation grows to 8 + 3 * (5 + 7) = 44 tokens = 11 blocks.
ChatWorkloadOptions SmallChat() {
  return {.conversations = 10,
          .turns = 3,
          .concurrency = 4,
          .system_tokens = 8,
          .user_tokens = 5,
          .reply_tokens = 7};
}

absl::StatusOr<ChatWorkloadReport> RunOn(Cache& cache, const ChatWorkloadOptions& options) {
  const auto client = cache.Open();
  return RunChatWorkload(*client, options, nullptr);
}

// The tokens of every block that was stored. They show what was said, in any order.
std::set<std::vector<TokenId>> StoredTokens(const Cache& cache) {
  std::set<std::vector<TokenId>> stored;
  const auto batches = cache.log().Read(cache.log().oldest(), 100000);
  for (const auto& batch : *batches) {
    for (const Event& event : *batch) {
      const auto* what = std::get_if<StoredEvent>(&event.what);
      if (what == nullptr) continue;
      auto tokens = what->tokens.begin();
      for (const StoredBlock& block : what->blocks) {
        stored.insert({tokens, tokens + block.token_count});
        tokens += block.token_count;
      }
    }
  }
  return stored;
}

TEST(ChatWorkloadTest, FinishesEveryTurnAndGivesEverythingBack) {
  Cache cache(200);
  const auto report = RunOn(cache, SmallChat());
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->turns_done, 30u);
  EXPECT_EQ(report->turns_total, 30u);
  EXPECT_EQ(report->reply_tokens, 30u * 7);
  EXPECT_EQ(report->deferrals, 0u);
  // A turn adds, appends each token, commits and frees.
  EXPECT_EQ(report->operations, 30u * (1 + 7 + 2));
  // Prompts of 13, 25 and 37 tokens.
  EXPECT_EQ(report->prompt_tokens, 10u * (13 + 25 + 37));
  EXPECT_LE(report->batch_latency_p50, report->batch_latency_p99);
  EXPECT_EQ(cache.occupancy().active, 0u);
  EXPECT_GT(cache.occupancy().cached, 0u);
  cache.manager().Read(&BlockManager::CheckInvariants);
}

TEST(ChatWorkloadTest, LaterTurnsFindTheirHistory) {
  Cache cache(200);
  const auto report = RunOn(cache, SmallChat());
  ASSERT_TRUE(report.ok()) << report.status();
  // If everything fits into the cache, a later turn finds the whole history: 20 and 32 tokens.
  EXPECT_GE(report->matched_tokens, 10u * (20 + 32));
  EXPECT_LT(report->matched_tokens, report->prompt_tokens);
}

TEST(ChatWorkloadTest, ASmallPoolDefersAndStillFinishes) {
  Cache cache(12);
  const auto report = RunOn(cache, SmallChat());
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->turns_done, 30u);
  EXPECT_EQ(report->reply_tokens, 30u * 7);
  EXPECT_GT(report->deferrals, 0u);
  EXPECT_EQ(cache.occupancy().active, 0u);
  cache.manager().Read(&BlockManager::CheckInvariants);
}

TEST(ChatWorkloadTest, ThePoolMayBeExactlyOneConversation) {
  Cache cache(11);
  const auto report = RunOn(cache, SmallChat());
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->turns_done, 30u);
}

TEST(ChatWorkloadTest, APoolBelowOneConversationIsRefusedWithTheFigures) {
  Cache cache(10);
  const auto report = RunOn(cache, SmallChat());
  EXPECT_EQ(ReasonOf(report.status()), Reason::kInvalidCount);
  EXPECT_THAT(std::string(report.status().message()), HasSubstr("44 tokens = 11 blocks of 4"));
  EXPECT_THAT(std::string(report.status().message()), HasSubstr("10 blocks"));
}

TEST(ChatWorkloadTest, TheSeedDecidesWhatIsSaidWhateverTheOrder) {
  ChatWorkloadOptions options = SmallChat();
  Cache one(200), narrow(200), other(200);
  ASSERT_TRUE(RunOn(one, options).ok());
  options.concurrency = 1;
  ASSERT_TRUE(RunOn(narrow, options).ok());
  options.seed = 2;
  ASSERT_TRUE(RunOn(other, options).ok());
  EXPECT_EQ(StoredTokens(one), StoredTokens(narrow));
  EXPECT_NE(StoredTokens(one), StoredTokens(other));
}

TEST(ChatWorkloadTest, BlocksThatOthersHoldEndItAfterItsPatience) {
  Cache cache(20);
  const auto hog = cache.Open();
  ASSERT_TRUE(RunOne<AllocatedBlocks>(*hog, AllocateBlocks{kFullAttention, 18}).ok());
  ChatWorkloadOptions options = SmallChat();
  options.patience = absl::Milliseconds(50);
  const auto report = RunOn(cache, options);
  EXPECT_EQ(ReasonOf(report.status()), Reason::kBlocksExhausted);
  cache.manager().Read(&BlockManager::CheckInvariants);
}

TEST(ChatWorkloadTest, FewSequencesDeferAndItStillFinishes) {
  Cache cache(200, {.max_sequences = 2});
  const auto report = RunOn(cache, SmallChat());
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->turns_done, 30u);
  EXPECT_GT(report->deferrals, 0u);
}

// Four conversations begin, and their tables may not all grow.
TEST(ChatWorkloadTest, FewBytesOfSequencesDeferAndItStillFinishes) {
  uint64_t most = 0;
  Cache ample(200);
  const auto client = ample.Open();
  ASSERT_TRUE(RunChatWorkload(*client, SmallChat(), [&](const ChatWorkloadReport&) {
                most = std::max(most, ample.sequence_bytes());
                return Next::kContinue;
              }).ok());
  ASSERT_GT(most, 0u);
  Cache cache(200, {.max_bytes = most - 1});
  const auto report = RunOn(cache, SmallChat());
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->turns_done, 30u);
  EXPECT_GT(report->deferrals, 0u);
}

TEST(ChatWorkloadTest, SequencesThatOthersHaveEndItAfterItsPatience) {
  Cache cache(200, {.max_sequences = 1});
  const auto hog = cache.Open();
  ASSERT_TRUE(
      RunOne<AddedSequence>(*hog, AddSequence{.sequence = SequenceId(1), .tokens = {1, 2}}).ok());
  ChatWorkloadOptions options = SmallChat();
  options.patience = absl::Milliseconds(50);
  const auto report = RunOn(cache, options);
  EXPECT_EQ(ReasonOf(report.status()), Reason::kTooManySequences) << report.status();
  EXPECT_THAT(std::string(report.status().message()), HasSubstr("no conversation got capacity"));
}

TEST(ChatWorkloadTest, TheCallbackStopsIt) {
  Cache cache(200);
  const auto client = cache.Open();
  const auto report = RunChatWorkload(*client, SmallChat(), [](const ChatWorkloadReport& so_far) {
    return so_far.batches == 3 ? Next::kStop : Next::kContinue;
  });
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->batches, 3u);
  EXPECT_LT(report->turns_done, report->turns_total);
}

// A client in front of another client.
class ClientInFront : public CacheClient {
 public:
  explicit ClientInFront(std::unique_ptr<CacheClient> behind) : behind_(std::move(behind)) {}

  const CacheInfo& info() const override { return behind_->info(); }
  absl::StatusOr<std::vector<std::unique_ptr<MappedPool>>> MapPools(MemoryAccess access) override {
    return behind_->MapPools(access);
  }

 protected:
  CacheClient& behind() { return *behind_; }

 private:
  const std::unique_ptr<CacheClient> behind_;
};

// The batch's step of appends, if it has one.
AppendStep* StepOf(std::vector<Operation>& operations) {
  for (Operation& operation : operations) {
    if (auto* step = std::get_if<AppendStep>(&operation)) return step;
  }
  return nullptr;
}

// Takes one sequence, which has one token, out of the step.
void Withhold(AppendStep& step, size_t index) {
  const auto at = static_cast<std::ptrdiff_t>(index);
  step.sequences.erase(step.sequences.begin() + at);
  step.tokens.erase(step.tokens.begin() + at);
  step.computed_tokens.erase(step.computed_tokens.begin() + at);
  step.known_losses.erase(step.known_losses.begin() + at);
}

// Puts a failure in the place of a sequence that was withheld. Sequences of a step are withheld
// from the last one on, so failures are planted from the first one on.
void Plant(AppendedStep& step, size_t index) {
  for (AppendedStep::Growth& growth : step.grown) growth.index += growth.index >= index ? 1 : 0;
  for (AppendedStep::Failure& failure : step.failed) {
    failure.index += failure.index >= index ? 1 : 0;
  }
  step.failed.push_back({static_cast<uint32_t>(index), MakeError(Reason::kKvLost, "planted")});
}

// The step's result. If no sequence was left in the step, it did not run.
AppendedStep& StepOf(BatchResult& result) {
  if (result.results.empty() || !result.results.back().ok() ||
      !std::holds_alternative<AppendedStep>(*result.results.back())) {
    result.results.push_back(AppendedStep{});
  }
  return std::get<AppendedStep>(*result.results.back());
}

// Reports after some batches that a sequence lost computed tokens, like a daemon whose copy failed.
// Refuses the commits that do not know of the loss.
class LossyClient final : public ClientInFront {
 public:
  LossyClient(std::unique_ptr<CacheClient> client, bool must_be_freed)
      : ClientInFront(std::move(client)), must_be_freed_(must_be_freed) {}

  using CacheClient::Execute;
  absl::StatusOr<BatchResult> Execute(absl::Span<const Operation> operations,
                                      StepRange steps) override {
    ++batches_;
    std::vector<Operation> passed(operations.begin(), operations.end());
    std::optional<SequenceId> lost;
    size_t refused = 0;
    AppendStep* const step = StepOf(passed);
    for (size_t i = 0; step != nullptr && i < step->sequences.size(); ++i) {
      told_ += step->known_losses[i];
      if (batches_ % 7 == 0 && !lost.has_value() && step->known_losses[i] == 0) {
        lost = step->sequences[i];
        refused = i;
      }
      step->known_losses[i] = 0;  // The cache itself has lost nothing.
    }
    for (Operation& operation : passed) {
      if (auto* commit = std::get_if<CommitTokens>(&operation)) commit->known_losses = 0;
    }
    if (lost.has_value()) Withhold(*step, refused);
    if (step != nullptr && step->sequences.empty()) passed.pop_back();
    absl::StatusOr<BatchResult> result = behind().Execute(passed, steps);
    if (result.ok() && lost.has_value()) {
      ++losses_;
      Plant(StepOf(*result), refused);
      result->shortened.push_back(
          {.sequence = *lost, .losses = 1, .must_be_freed = must_be_freed_});
    }
    return result;
  }

  uint64_t losses() const { return losses_; }
  uint64_t told() const { return told_; }  // Losses that commits named.

 private:
  const bool must_be_freed_;
  uint64_t batches_ = 0;
  uint64_t losses_ = 0;
  uint64_t told_ = 0;
};

// Every lost sequence began again, and all turns were done.
template <typename Client>
void ExpectLostOnesBeginAnew(Client& client) {
  const auto report = RunChatWorkload(client, SmallChat(), nullptr);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->turns_done, 30u);
  ASSERT_GT(client.losses(), 0u);
  EXPECT_EQ(report->lost, client.losses());
  EXPECT_EQ(report->deferrals, client.losses());
}

TEST(ChatWorkloadTest, LossesAreCountedAndNamedInCommits) {
  Cache cache(200);
  LossyClient client(cache.Open(), /*must_be_freed=*/false);
  const auto report = RunChatWorkload(client, SmallChat(), nullptr);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->turns_done, 30u);
  ASSERT_GT(client.losses(), 0u);
  EXPECT_EQ(report->shortened, client.losses());
  EXPECT_EQ(report->refused, client.losses());
  EXPECT_EQ(report->lost, 0u);
  EXPECT_GT(client.told(), 0u);
}

TEST(ChatWorkloadTest, ASequenceThatCanOnlyBeFreedBeginsAnew) {
  Cache cache(200);
  LossyClient client(cache.Open(), /*must_be_freed=*/true);
  ExpectLostOnesBeginAnew(client);
}

// Says in the answer to some AddSequences that the new sequence can only be freed. From then on it
// refuses every other operation on that sequence, as a daemon does.
class LostAtOnceClient final : public ClientInFront {
 public:
  using ClientInFront::ClientInFront;

  using CacheClient::Execute;
  absl::StatusOr<BatchResult> Execute(absl::Span<const Operation> operations,
                                      StepRange steps) override {
    std::vector<Operation> passed(operations.begin(), operations.end());
    std::set<size_t> refused;
    std::vector<SequenceId> newly_lost;
    AppendStep* const step = StepOf(passed);
    for (size_t i = step == nullptr ? 0 : step->sequences.size(); i-- > 0;) {
      if (!lost_.contains(step->sequences[i])) continue;
      Withhold(*step, i);
      refused.insert(i);
    }
    for (size_t i = 0; i < passed.size(); ++i) {
      if (const auto* add = std::get_if<AddSequence>(&passed[i])) {
        if (++adds_ % 4 == 0) newly_lost.push_back(add->sequence);
      } else if (const auto* free = std::get_if<FreeSequence>(&passed[i])) {
        lost_.erase(free->sequence);
      }
    }
    if (step != nullptr && step->sequences.empty()) passed.pop_back();
    absl::StatusOr<BatchResult> result = behind().Execute(passed, steps);
    for (const size_t i : refused) Plant(StepOf(*result), i);
    for (const SequenceId sequence : newly_lost) {
      result->shortened.push_back({.sequence = sequence, .losses = 1, .must_be_freed = true});
      lost_.insert(sequence);
      ++losses_;
    }
    return result;
  }

  uint64_t losses() const { return losses_; }

 private:
  std::set<SequenceId> lost_;
  uint64_t adds_ = 0;
  uint64_t losses_ = 0;
};

TEST(ChatWorkloadTest, ASequenceThatIsLostWhenItIsAddedBeginsAnew) {
  Cache cache(200);
  LostAtOnceClient client(cache.Open());
  ExpectLostOnesBeginAnew(client);
}

TEST(ChatWorkloadTest, ZerosAreRefused) {
  Cache cache(200);
  ChatWorkloadOptions options = SmallChat();
  options.reply_tokens = 0;
  EXPECT_EQ(ReasonOf(RunOn(cache, options).status()), Reason::kInvalidArgument);
  options = SmallChat();
  options.concurrency = kMaxConcurrency + 1;
  EXPECT_EQ(ReasonOf(RunOn(cache, options).status()), Reason::kInvalidArgument);
}

}  // namespace
}  // namespace pagoda
