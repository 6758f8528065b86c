// The core against the naive model: random operations, everything compared after each one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "manager/block_manager.h"
#include "manager/sequences/cached_prefixes.h"
#include "manager/sequences/session_endings.h"
#include "tests/events/shadow_tree.h"
#include "tests/manager/fixtures/prompt_of.h"
#include "tests/manager/fixtures/testing.h"
#include "tests/manager/naive_model.h"

namespace pagoda {
namespace {

using Tokens = NaiveModel::Tokens;

constexpr int kOperations = 2000;
constexpr int kSessions = 3;
constexpr int kSequences = 4;  // In each session.

int Seeds() {
  const char* seeds = std::getenv("PAGODA_PROPERTY_SEEDS");
  return seeds == nullptr ? 200 : std::atoi(seeds);  // deploy/test.sh --long runs 1,000.
}

// One seed: a core, its model, its shadow and a stream of random operations.
class Scenario {
 public:
  explicit Scenario(uint64_t seed)
      : random_(seed),
        tokens_per_block_(1u << Pick(4)),
        capacity_(2 + Pick(38)),
        // The model evicts by lru.
        core_(*BlockManager::Create({.layout = TinyLayout(tokens_per_block_),
                                     .tiers = HostTiers({capacity_}),
                                     .eviction_policy = "lru",
                                     .epoch = Epoch{1}})),
        model_(capacity_, tokens_per_block_) {
    for (int i = 0; i < kSessions; ++i) {
      sessions_.push_back(core_->OpenSession("random", absl::InfiniteDuration(), now_)->ref);
    }
    raw_.resize(kSessions);
  }

  void Step() {
    now_ += absl::Milliseconds(1);
    PickSequence();
    // Out of 20.
    const uint32_t dice = Pick(20);
    if (dice < 4) return Add();
    PreferRunning();
    if (dice < 6) return Reserve();
    if (dice < 9) return Commit();
    if (dice < 14) return Append();
    if (dice < 16) return Free();
    if (dice < 17) return Match();
    if (dice < 18) return TakeRaw();
    if (dice < 19) return FreeRaw();
    return Rare();
  }

  // Compares everything visible.
  void Check() {
    core_->CheckInvariants();
    for (const Event& event : core_->TakeEvents()) {
      ASSERT_EQ(shadow_.Apply(event), absl::OkStatus());
      history_.push_back(event);
    }
    const std::vector<TreeEntry> tree = core_->DumpTree(kFullAttention);
    ASSERT_EQ(shadow_.Dump(kFullAttention), tree);
    ASSERT_EQ(PathsOf(tree), model_.Cached());
    // Copies end at once here. The simulation covers running copies.
    ASSERT_TRUE(core_->TakeOrders().empty());

    const WindowStats stats = core_->Stats().windows.front();
    const TierOccupancy& primary = stats.tiers[0];
    ASSERT_EQ(primary.sum(), capacity_);
    ASSERT_EQ((NaiveModel::Counts{primary.free, primary.cached, primary.active}), model_.counts());
    ASSERT_EQ(stats.counters.evicted_blocks, model_.evictions());
    ASSERT_EQ(stats.counters.partial_copies, model_.copies());
    ASSERT_EQ(stats.counters.taken_over_blocks, model_.taken_over());
    for (const NaiveModel::SequenceName& name : model_.Running()) CheckSequence(name, tree);
  }

  // Ends all sessions; afterwards nothing may be held.
  void Finish() {
    for (session_ = 0; session_ < kSessions; ++session_) {
      EndSession();
      Check();
    }
    EXPECT_EQ(core_->Stats().windows.front().tiers[0].active, 0u);
  }

  const std::vector<Event>& history() const { return history_; }
  uint64_t refusals() const { return refusals_; }
  uint64_t matched_tokens() const { return matched_tokens_; }
  const NaiveModel& model() const { return model_; }

 private:
  uint32_t Pick(uint32_t n) { return static_cast<uint32_t>(random_() % n); }
  // A sequence matches the model, and its cached blocks hold its tokens, in order. CheckInvariants
  // counts holders, so it finds out if anything else has its other blocks.
  void CheckSequence(const NaiveModel::SequenceName& name, const std::vector<TreeEntry>& tree) {
    const Tokens& tokens = *model_.TokensOf(name);
    const auto described = core_->Execute(
        SessionId{name.first}, DescribeSequence{.sequence = SequenceId{name.second}}, now_);
    ASSERT_TRUE(described.ok());
    const auto& sequence = std::get<DescribedSequence>(*described);
    ASSERT_EQ(sequence.token_count, tokens.size());
    ASSERT_EQ(sequence.computed_tokens, model_.ComputedOf(name));
    ASSERT_EQ(sequence.reserved_tokens, model_.ReservedOf(name));
    const std::vector<BlockHandle>& table = sequence.tables.front().blocks;
    ASSERT_EQ(table.size(), TokensPerBlock(tokens_per_block_).BlocksFor(sequence.reserved_tokens));
    ASSERT_EQ(table, tables_[name]) << "the table is what the answers said";
    for (size_t i = 0; i < table.size(); ++i) {
      const auto cached = std::find_if(tree.begin(), tree.end(), [&](const TreeEntry& entry) {
        return entry.id == table[i].id;
      });
      if (cached == tree.end()) continue;
      const auto begin = tokens.begin() + static_cast<ptrdiff_t>(i * tokens_per_block_);
      ASSERT_EQ(cached->tokens, Tokens(begin, begin + tokens_per_block_));
    }
  }
  // The new end of a sequence's table, as an answer gave it.
  void Extend(const std::vector<BlockTable>& added) {
    std::vector<BlockHandle>& table = tables_[name_];
    const std::vector<BlockHandle>& blocks = added.front().blocks;
    table.insert(table.end(), blocks.begin(), blocks.end());
  }

  void PickSequence() {
    session_ = Pick(kSessions);
    name_ = {sessions_[session_].id.value(), Pick(kSequences)};
  }
  // Mostly a sequence that runs.
  void PreferRunning() {
    const std::vector<NaiveModel::SequenceName> running = model_.Running();
    if (running.empty() || Pick(20) == 0) return;
    name_ = running[Pick(static_cast<uint32_t>(running.size()))];
    const auto is_its = [this](const SessionRef& ref) { return ref.id.value() == name_.first; };
    session_ = static_cast<uint32_t>(std::find_if(sessions_.begin(), sessions_.end(), is_its) -
                                     sessions_.begin());
  }
  SequenceId id() const { return SequenceId{name_.second}; }
  SessionId session() const { return sessions_[session_].id; }

  // Few token ids, and often the beginning of another sequence, so that prefixes meet.
  Tokens RandomTokens(uint32_t most) {
    Tokens tokens(Pick(most + 1));
    for (TokenId& token : tokens) token = Pick(2);
    return tokens;
  }
  Tokens RandomPrompt() {
    Tokens prompt;
    if (!prompts_.empty() && Pick(4) != 0) {
      prompt = prompts_[Pick(static_cast<uint32_t>(prompts_.size()))];
      if (Pick(3) == 0) prompt.resize(Pick(static_cast<uint32_t>(prompt.size()) + 1));
    }
    const Tokens more = RandomTokens(3 * tokens_per_block_);
    prompt.insert(prompt.end(), more.begin(), more.end());
    // Mostly small enough for a few sequences to run at once.
    const size_t fits = size_t{capacity_} * tokens_per_block_ / 4 + 1;
    if (Pick(10) != 0) prompt.resize(std::min(prompt.size(), fits));
    return prompt;
  }
  void Remember(const Tokens& tokens) {
    if (prompts_.size() < 8) prompts_.emplace_back();
    prompts_[Pick(static_cast<uint32_t>(prompts_.size()))] = tokens;
  }
  std::string RandomSalt() { return Pick(5) == 0 ? "salt" : ""; }
  // Mostly plausible: the sequence's current value, or a little more.
  uint32_t RandomComputed(uint32_t more) {
    const Tokens* tokens = model_.TokensOf(name_);
    if (tokens == nullptr || Pick(12) == 0) return Pick(4 * tokens_per_block_);
    const auto most = static_cast<uint32_t>(tokens->size()) + more;
    const uint32_t reachable = std::min(most, model_.ReservedOf(name_));
    const uint32_t low = std::min(model_.ComputedOf(name_), most);
    return Pick(2) == 0 ? reachable : low + Pick(most - low + 1);
  }

  static SequenceRetention RetentionOf(const NaiveModel::Wish& wish) {
    SequenceRetention retention;
    if (wish.prompt.has_value()) {
      retention.ranges = {{.token_start = 0, .retention = {.priority = Priority{*wish.prompt}}}};
    }
    if (wish.generated.has_value()) {
      retention.generated = BlockRetention{.priority = Priority{*wish.generated}};
    }
    return retention;
  }
  NaiveModel::Wish RandomWish() {
    NaiveModel::Wish wish;
    if (Pick(4) == 0) wish.prompt = static_cast<uint8_t>(34 + Pick(3));
    if (Pick(4) == 0) wish.generated = static_cast<uint8_t>(34 + Pick(3));
    return wish;
  }
  // The source of the part of a block at the end of a match. Any block that shares equally many
  // tokens is valid, so the core is asked.
  std::optional<NaiveModel::Path> SourceOf(const std::string& salt, const Tokens& prompt) {
    if (prompt.empty()) return std::nullopt;
    const std::vector<NaiveModel::Path> sources = model_.Sources(salt, prompt);
    std::vector<BlockHandle> blocks;
    const uint32_t matched =
        core_->prefixes().Match(PromptOf({.cache_salt = salt}, prompt), &blocks);
    EXPECT_EQ(matched, model_.Match(salt, prompt));
    if (matched % tokens_per_block_ == 0) return std::nullopt;
    for (const auto& [id, path] : PathsById(core_->DumpTree(kFullAttention))) {
      if (id != blocks.back().id) continue;
      EXPECT_THAT(sources, testing::Contains(path));
      return path;
    }
    ADD_FAILURE() << "a match ends in a block that is not cached";
    return std::nullopt;
  }

  void Add() {
    const Tokens prompt = RandomPrompt();
    const std::string salt = RandomSalt();
    const uint32_t reserved =
        Pick(3) == 0 ? Pick(static_cast<uint32_t>(prompt.size()) + tokens_per_block_) : 0;
    const NaiveModel::Wish wish = RandomWish();
    const std::optional<NaiveModel::Path> source = SourceOf(salt, prompt);
    const auto result = Execute<AddedSequence>(AddSequence{.sequence = id(),
                                                           .name_space = {.cache_salt = salt},
                                                           .tokens = prompt,
                                                           .reserved_tokens = reserved,
                                                           .retention = RetentionOf(wish)});
    uint32_t matched = 0;
    ExpectReason(result.status(),
                 model_.Add(name_, salt, prompt, reserved, wish, source, &matched));
    if (!result.ok()) return;
    EXPECT_EQ(result->matched_tokens, matched);
    EXPECT_EQ(result->tables.front().blocks.size(),
              TokensPerBlock(tokens_per_block_).BlocksFor(model_.ReservedOf(name_)));
    matched_tokens_ += result->matched_tokens;
    tables_[name_] = result->tables.front().blocks;
    Remember(prompt);
  }
  void Reserve() {
    const uint32_t count = Pick(20) == 0 ? 1u << Pick(32) : Pick(2 * tokens_per_block_ + 1);
    const auto result = Execute<ReservedTokens>(ReserveTokens{.sequence = id(), .count = count});
    ExpectReason(result.status(), model_.Reserve(name_, count));
    if (result.ok()) Extend(result->added);
  }
  void Commit() {
    Tokens tokens = RandomTokens(2 * tokens_per_block_);
    if (const Tokens* now = model_.TokensOf(name_); now != nullptr && Pick(4) != 0) {
      const auto reserved = model_.ReservedOf(name_);
      tokens.resize(
          std::min<size_t>(tokens.size(), reserved - std::min<size_t>(reserved, now->size())));
    }
    const uint32_t computed = RandomComputed(static_cast<uint32_t>(tokens.size()));
    const auto result = Execute<CommittedTokens>(
        CommitTokens{.sequence = id(), .tokens = tokens, .computed_tokens = computed});
    ExpectReason(result.status(), model_.Commit(name_, tokens, computed));
    if (!result.ok()) return;
    EXPECT_EQ(result->token_count, model_.TokensOf(name_)->size());
  }
  void Append() {
    const Tokens tokens = RandomTokens(Pick(2) == 0 ? 1 : 2 * tokens_per_block_);
    const uint32_t computed = RandomComputed(static_cast<uint32_t>(tokens.size()));
    const auto result = Execute<AppendedTokens>(
        AppendTokens{.sequence = id(), .tokens = tokens, .computed_tokens = computed});
    ExpectReason(result.status(), model_.Append(name_, tokens, computed));
    if (result.ok()) Extend(result->added);
  }
  void Free() {
    if (const Tokens* tokens = model_.TokensOf(name_)) Remember(*tokens);
    const auto result = Execute<FreedSequence>(FreeSequence{.sequence = id()});
    ExpectReason(result.status(), model_.Free(name_));
  }
  void Match() {
    const Tokens prompt = RandomPrompt();
    const std::string salt = RandomSalt();
    const auto result =
        Execute<MatchedPrefix>(MatchPrefix{.name_space = {.cache_salt = salt}, .tokens = prompt});
    ASSERT_TRUE(result.ok());
    EXPECT_EQ(result->matched_tokens, prompt.empty() ? 0 : model_.Match(salt, prompt));
  }
  void TakeRaw() {
    const uint32_t count = Pick(20) == 0 ? 1u << Pick(32) : Pick(3);
    const auto result = Execute<AllocatedBlocks>(AllocateBlocks{.count = count});
    ExpectReason(result.status(), model_.TakeRaw(count));
    if (!result.ok()) return;
    for (const BlockHandle& handle : result->blocks) raw_[session_].push_back(handle.ref());
  }
  // The session's own blocks, or one kind of wrong ones.
  void FreeRaw() {
    std::vector<BlockRef>& own = raw_[session_];
    const auto owned = static_cast<uint32_t>(own.size());
    std::vector<BlockRef> refs(own.begin(), own.begin() + (Pick(2) == 0 ? owned : Pick(owned + 1)));
    Reason expected = refs.empty() ? Reason::kInvalidCount : Reason::kNone;
    const std::vector<BlockRef>& other = raw_[(session_ + 1) % kSessions];
    if (!refs.empty() && Pick(3) == 0) {
      switch (Pick(4)) {
        case 0:
          refs.push_back(refs.front());
          expected = Reason::kDoubleFree;
          break;
        case 1:
          refs.back().generation = Generation{refs.back().generation.value() - 1};
          expected = Reason::kStaleHandle;
          break;
        case 2:
          refs.push_back({BlockId{capacity_ + Pick(3)}, Generation{1}});
          expected = Reason::kUnknownBlock;
          break;
        case 3:
          if (other.empty()) break;
          refs.push_back(other.front());
          expected = Reason::kForeignBlock;
          break;
      }
    }
    const auto result = Execute<FreedBlocks>(FreeBlocks{.blocks = refs});
    ExpectReason(result.status(), expected);
    if (!result.ok()) return;
    model_.FreeRaw(static_cast<uint32_t>(refs.size()));
    own.erase(own.begin(), own.begin() + static_cast<ptrdiff_t>(refs.size()));
  }
  void Rare() {
    if (Pick(10) == 0) {
      core_->ResetPrefixCache(now_);
      model_.Reset();
    } else if (Pick(5) == 0) {
      EndSession();
    }
  }
  void EndSession() {
    ASSERT_TRUE(core_->endings().CloseSession(sessions_[session_], now_).ok());
    for (uint64_t i = 0; i < kSequences; ++i) model_.Free({session().value(), i});
    model_.FreeRaw(static_cast<uint32_t>(raw_[session_].size()));
    raw_[session_].clear();
    sessions_[session_] = core_->OpenSession("random", absl::InfiniteDuration(), now_)->ref;
  }

  template <class Result>
  absl::StatusOr<Result> Execute(Operation operation) {
    absl::StatusOr<OperationResult> result = core_->Execute(session(), operation, now_);
    for (const Order& order : core_->TakeOrders()) {
      core_->Complete(order.lane, order.ticket, absl::OkStatus(), now_);
    }
    if (!result.ok()) return result.status();
    return std::get<Result>(*std::move(result));
  }
  void ExpectReason(const absl::Status& status, Reason expected) {
    EXPECT_EQ(ReasonName(ReasonOf(status)), ReasonName(expected)) << status;
    EXPECT_EQ(status.ok(), expected == Reason::kNone);
    if (!status.ok()) ++refusals_;
  }
  static std::map<BlockId, NaiveModel::Path> PathsById(const std::vector<TreeEntry>& tree) {
    std::map<BlockId, const TreeEntry*> by_id;
    for (const TreeEntry& entry : tree) by_id[entry.id] = &entry;
    std::map<BlockId, NaiveModel::Path> paths;
    for (const TreeEntry& entry : tree) {
      Tokens tokens;
      for (const TreeEntry* e = &entry;; e = by_id.at(e->parent)) {
        tokens.insert(tokens.begin(), e->tokens.begin(), e->tokens.end());
        if (e->parent == kNoBlock) break;
      }
      paths[entry.id] = {entry.name_space.cache_salt, std::move(tokens)};
    }
    return paths;
  }
  static std::vector<std::pair<NaiveModel::Path, uint8_t>> PathsOf(
      const std::vector<TreeEntry>& tree) {
    const std::map<BlockId, NaiveModel::Path> by_id = PathsById(tree);
    std::vector<std::pair<NaiveModel::Path, uint8_t>> paths;
    for (const TreeEntry& entry : tree) {
      paths.emplace_back(by_id.at(entry.id), entry.priority.value());
    }
    std::sort(paths.begin(), paths.end());
    return paths;
  }

  std::mt19937_64 random_;
  const uint32_t tokens_per_block_;
  const uint32_t capacity_;
  absl::Time now_ = absl::UnixEpoch();
  std::unique_ptr<BlockManager> core_;
  NaiveModel model_;
  ShadowTree shadow_;
  std::vector<Event> history_;
  std::vector<SessionRef> sessions_;
  std::map<NaiveModel::SequenceName, std::vector<BlockHandle>> tables_;
  std::vector<std::vector<BlockRef>> raw_;
  std::vector<Tokens> prompts_;
  uint32_t session_ = 0;
  NaiveModel::SequenceName name_;
  uint64_t refusals_ = 0;
  uint64_t matched_tokens_ = 0;
};

TEST(PropertyTest, EqualsTheNaiveModelAfterEveryOperation) {
  uint64_t refusals = 0, matched_tokens = 0, evictions = 0, copies = 0, taken_over = 0;
  uint64_t tails_in_longer = 0;
  for (int seed = 0; seed < Seeds(); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Scenario run(static_cast<uint64_t>(seed));
    for (int i = 0; i < kOperations; ++i) {
      SCOPED_TRACE(testing::Message() << "operation " << i);
      run.Step();
      run.Check();
      if (testing::Test::HasFailure()) FAIL() << "the first failure ends the test";
    }
    run.Finish();
    refusals += run.refusals();
    matched_tokens += run.matched_tokens();
    evictions += run.model().evictions();
    copies += run.model().copies();
    taken_over += run.model().taken_over();
    tails_in_longer += run.model().tails_in_longer();
  }
  // The operations must have covered the intended cases.
  const auto seeds = static_cast<uint64_t>(Seeds());
  EXPECT_GT(refusals, 100 * seeds);
  EXPECT_GT(matched_tokens, 100 * seeds);
  EXPECT_GT(evictions, 50 * seeds);
  EXPECT_GT(copies, 10 * seeds);
  EXPECT_GT(taken_over, 5 * seeds);
  EXPECT_GT(tails_in_longer, 5 * seeds);
}

TEST(PropertyTest, TheSameSeedGivesTheSameEvents) {
  for (uint64_t seed = 0; seed < 10; ++seed) {
    std::vector<Event> histories[2];
    for (std::vector<Event>& history : histories) {
      Scenario run(seed);
      for (int i = 0; i < kOperations; ++i) run.Step(), run.Check();
      run.Finish();
      history = run.history();
    }
    EXPECT_GT(histories[0].size(), 100u);
    EXPECT_EQ(histories[0], histories[1]);
  }
}

}  // namespace
}  // namespace pagoda
