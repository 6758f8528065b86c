#include "engine/serve/daemon/tenant_sessions.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/random/random.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace pagoda {
namespace {

// What one session was asked, and the sequences that are open in it.
struct Seen {
  std::vector<Operation> operations;
  std::set<SequenceId> open;
  absl::Status fails;  // The error of every call.
  uint64_t completed = 0;
  absl::Duration takes;  // Each call.
};

// A session that grows a sequence at every second append, by one block whose id is the sequence's.
class FakeSession final : public CacheClient {
 public:
  explicit FakeSession(Seen* seen) : seen_(seen) {
    info_.name = "cache";
    info_.windows.resize(2);
  }

  const CacheInfo& info() const override { return info_; }

  absl::StatusOr<BatchResult> Execute(absl::Span<const Operation> operations, StepRange) override {
    absl::SleepFor(seen_->takes);
    if (!seen_->fails.ok()) return seen_->fails;
    BatchResult result;
    result.completed = Ticket(seen_->completed);
    for (const Operation& operation : operations) {
      seen_->operations.push_back(operation);
      result.results.push_back(Answer(operation));
    }
    return result;
  }

  absl::StatusOr<std::vector<std::unique_ptr<MappedPool>>> MapPools(MemoryAccess) override {
    return std::vector<std::unique_ptr<MappedPool>>();
  }

 private:
  static absl::Status Unknown() { return MakeError(Reason::kUnknownSequence, "not here"); }

  absl::StatusOr<OperationResult> Answer(const Operation& operation) {
    if (const auto* add = std::get_if<AddSequence>(&operation)) {
      seen_->open.insert(add->sequence);
      return AddedSequence{};
    }
    if (const auto* fork = std::get_if<ForkSequence>(&operation)) {
      if (!seen_->open.contains(fork->sequence)) return Unknown();
      seen_->open.insert(fork->new_sequence);
      return ForkedSequence{};
    }
    if (const auto* free = std::get_if<FreeSequence>(&operation)) {
      if (seen_->open.erase(free->sequence) == 0) return Unknown();
      return FreedSequence{};
    }
    if (std::holds_alternative<QueryCapacity>(operation)) return CapacityAnswer{};
    if (std::holds_alternative<WaitForTicket>(operation)) return WaitedForTicket{};
    return Append(std::get<AppendStep>(operation));
  }

  // A sequence whose first token is odd grows. One that is not open fails.
  absl::StatusOr<OperationResult> Append(const AppendStep& step) {
    AppendedStep answer;
    std::vector<BlockHandle> blocks;
    size_t token = 0;
    for (uint32_t i = 0; i < step.sequences.size(); ++i) {
      const SequenceId sequence = step.sequences[i];
      const uint32_t count = step.token_counts.empty() ? 1 : step.token_counts[i];
      if (!seen_->open.contains(sequence)) {
        answer.failed.push_back({.index = i, .status = Unknown()});
      } else if (step.tokens[token] % 2 == 1) {
        answer.grown.push_back({.index = i, .first_block = 7, .blocks = 1});
        for (size_t w = 0; w < info_.windows.size(); ++w)
          answer.blocks.push_back(BlockOf(sequence));
      }
      token += count;
    }
    EXPECT_EQ(token, step.tokens.size());
    return answer;
  }

 public:
  static BlockHandle BlockOf(SequenceId sequence) {
    BlockHandle handle;
    handle.slot = SlotIndex(static_cast<uint32_t>(sequence.value()));
    return handle;
  }

 private:
  Seen* const seen_;
  CacheInfo info_;
};

class TenantSessionsTest : public ::testing::Test {
 protected:
  TenantSessions::Session Open(Seen* seen) {
    return {.client = std::make_unique<FakeSession>(seen), .fetcher = nullptr};
  }

  std::shared_ptr<TenantSessions> Make() {
    return std::make_shared<TenantSessions>(
        Open(&own_),
        [this](const std::string& tenant,
               const std::string& token) -> absl::StatusOr<TenantSessions::Session> {
          ++opened_;
          if (token != absl::StrCat("token of ", tenant)) {
            return MakeError(Reason::kUnauthenticated, "the token is not known");
          }
          TenantSessions::Session session = Open(&tenants_[tenant]);
          session.is_over = [this] { return over_; };
          return session;
        },
        [this](const std::string& tenant, const std::string& token) {
          ++checked_;
          return token == absl::StrCat("token of ", tenant) ||
                         token == absl::StrCat("second token of ", tenant)
                     ? absl::OkStatus()
                     : MakeError(Reason::kUnauthenticated, "the token is not known");
        },
        [this] { return own_status_; });
  }
  absl::StatusOr<TenantSessions::SessionPtr> Get(TenantSessions& sessions,
                                                 const std::string& tenant) {
    return sessions.Get(tenant, absl::StrCat("token of ", tenant));
  }

  Seen own_;
  std::map<std::string, Seen> tenants_;
  absl::Status own_status_;
  bool over_ = false;
  int opened_ = 0;
  int checked_ = 0;
};

AddSequence Add(uint64_t sequence, const std::string& tenant, const std::string& owner = "") {
  return {.sequence = SequenceId(sequence),
          .name_space = {.tenant = owner},
          .tokens = {1, 2},
          .tenant = tenant};
}

AppendStep Step(std::vector<uint64_t> sequences, std::vector<TokenId> tokens) {
  AppendStep step{.tokens = std::move(tokens)};
  for (const uint64_t sequence : sequences) step.sequences.push_back(SequenceId(sequence));
  return step;
}

TEST_F(TenantSessionsTest, ATenantsSequencesRunInItsSession) {
  const auto sessions = Make();
  const auto red = Get(*sessions, "red");
  const auto blue = Get(*sessions, "blue");
  ASSERT_TRUE(red.ok() && blue.ok());
  const auto client = sessions->MakeClient();
  own_.completed = 3;
  tenants_["red"].completed = 5;
  const Operation batch[] = {Add(1, ""), Add(2, "red"), Add(3, "blue"), Add(4, "red", "red")};
  const auto added = client->Execute(batch);
  ASSERT_TRUE(added.ok());
  for (const auto& result : added->results) EXPECT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(added->completed, Ticket(5));  // The latest of all sessions.
  EXPECT_EQ(own_.open, std::set({SequenceId(1)}));
  EXPECT_EQ(tenants_["red"].open, std::set({SequenceId(2), SequenceId(4)}));
  EXPECT_EQ(tenants_["blue"].open, std::set({SequenceId(3)}));

  // Later operations name the sequence alone.
  const Operation later[] = {ForkSequence{SequenceId(2), SequenceId(5)},
                             FreeSequence{SequenceId(3)}, FreeSequence{SequenceId(1)}};
  const auto done = client->Execute(later);
  ASSERT_TRUE(done.ok());
  for (const auto& result : done->results) EXPECT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(tenants_["red"].open.contains(SequenceId(5)));
  EXPECT_TRUE(tenants_["blue"].open.empty());
  EXPECT_TRUE(own_.open.empty());
}

TEST_F(TenantSessionsTest, ATenantWhoseCallWasSlowIsNamedUntilItRested) {
  const auto sessions = Make();
  const auto red = Get(*sessions, "red");
  const auto blue = Get(*sessions, "blue");
  const auto client = sessions->MakeClient();
  const auto begin = [&](uint64_t number) {
    const Operation batch[] = {Add(number, ""), Add(number + 1, "red"), Add(number + 2, "blue")};
    ASSERT_TRUE(client->Execute(batch).ok());
  };
  for (const absl::Status& fails : {absl::OkStatus(), absl::DeadlineExceededError("too long")}) {
    tenants_["red"].takes = TenantSessions::kSlow;
    tenants_["red"].fails = fails;
    own_.takes = TenantSessions::kSlow;
    begin(1);
    EXPECT_THAT(client->SlowTenants(), testing::Contains("red"));
    EXPECT_THAT(client->SlowTenants(), testing::Not(testing::Contains("")));
    tenants_["red"].takes = own_.takes = absl::ZeroDuration();
    tenants_["red"].fails = absl::OkStatus();
    // A machine that is busy can make a call slow.
    while (!client->SlowTenants().empty()) begin(10);
  }
}

TEST_F(TenantSessionsTest, ABatchUsesTheSequencesThatItOpens) {
  const auto sessions = Make();
  const auto red = Get(*sessions, "red");
  const auto client = sessions->MakeClient();
  const Operation batch[] = {Add(1, "red"), ForkSequence{SequenceId(1), SequenceId(2)},
                             ForkSequence{SequenceId(2), SequenceId(3)},
                             FreeSequence{SequenceId(2)}, Step({1, 3}, {1, 1})};
  const auto result = client->Execute(batch);
  ASSERT_TRUE(result.ok());
  for (const auto& one : result->results) EXPECT_TRUE(one.ok()) << one.status();
  EXPECT_EQ(std::get<AppendedStep>(*result->results.back()).grown.size(), 2u);
  EXPECT_EQ(tenants_["red"].open, std::set({SequenceId(1), SequenceId(3)}));
  EXPECT_TRUE(own_.operations.empty());
}

TEST_F(TenantSessionsTest, AStepIsSplitAndJoined) {
  const auto sessions = Make();
  const auto red = Get(*sessions, "red");
  const auto blue = Get(*sessions, "blue");
  const auto client = sessions->MakeClient();
  const std::string names[] = {"", "red", "blue"};
  absl::BitGen random;
  std::vector<uint64_t> open;
  for (uint64_t i = 1; i <= 60; ++i) {
    const Operation add = Add(i, names[absl::Uniform(random, 0, 3)]);
    ASSERT_TRUE(client->Execute({&add, 1})->results[0].ok());
    open.push_back(i);
  }
  for (int round = 0; round < 200; ++round) {
    std::shuffle(open.begin(), open.end(), random);
    const std::vector<uint64_t> members(open.begin(), open.begin() + absl::Uniform(random, 1, 60));
    AppendStep step = Step(members, {});
    step.token_counts.resize(members.size());
    step.known_losses.resize(absl::Bernoulli(random, 0.5) ? members.size() : 0);
    std::vector<uint32_t> grown;
    for (size_t i = 0; i < members.size(); ++i) {
      step.token_counts[i] = absl::Uniform(random, 1u, 4u);
      for (uint32_t t = 0; t < step.token_counts[i]; ++t) {
        step.tokens.push_back(absl::Uniform(random, 0u, 100u));
        if (t == 0 && step.tokens.back() % 2 == 1) grown.push_back(static_cast<uint32_t>(i));
      }
    }
    const Operation operation = step;
    const auto result = client->Execute({&operation, 1});
    ASSERT_TRUE(result.ok());
    const auto& appended = std::get<AppendedStep>(*result->results[0]);
    ASSERT_EQ(appended.grown.size(), grown.size());
    ASSERT_EQ(appended.blocks.size(), 2 * grown.size());
    EXPECT_TRUE(appended.failed.empty());
    for (size_t i = 0; i < grown.size(); ++i) {
      EXPECT_EQ(appended.grown[i].index, grown[i]);  // Ascending, as the engine expects them.
      const BlockHandle block = FakeSession::BlockOf(SequenceId(members[grown[i]]));
      EXPECT_EQ(appended.blocks[2 * i].slot, block.slot);
      EXPECT_EQ(appended.blocks[2 * i + 1].slot, block.slot);
    }
  }
}

TEST_F(TenantSessionsTest, OneSessionsEndIsNotTheOthers) {
  const auto sessions = Make();
  const auto red = Get(*sessions, "red");
  const auto blue = Get(*sessions, "blue");
  const auto client = sessions->MakeClient();
  const Operation adds[] = {Add(1, "red"), Add(2, "blue"), Add(3, "")};
  ASSERT_TRUE(client->Execute(adds).ok());
  tenants_["red"].fails = MakeError(Reason::kUnknownSession, "an operator ended it");
  const Operation step = Step({1, 2, 3}, {1, 1, 1});
  const auto result = client->Execute({&step, 1});
  ASSERT_TRUE(result.ok());
  const auto& appended = std::get<AppendedStep>(*result->results[0]);
  ASSERT_EQ(appended.failed.size(), 1u);
  EXPECT_EQ(appended.failed[0].index, 0u);
  EXPECT_EQ(ReasonOf(appended.failed[0].status), Reason::kUnknownSession);
  EXPECT_EQ(appended.grown.size(), 2u);
}

TEST_F(TenantSessionsTest, NothingOfATenantRunsWithTheEnginesOwnRights) {
  const auto sessions = Make();
  const auto client = sessions->MakeClient();
  EXPECT_FALSE(sessions->Get("red", "another token").ok());
  const Operation query = QueryCapacity{.name_space = {}, .tokens = {1}, .tenant = "red"};
  const Operation batch[] = {
      Add(1, "red"), query,
      MatchPrefix{.tokens = {1}, .extra_token_ids = {}, .multimodal_items = {}, .tenant = "red"},
      OffloadPrefix{.name_space = {}, .tokens = {1}, .tenant = "red"},
      PrefetchPrefix{.name_space = {}, .tokens = {1}, .tenant = "red"}};
  const auto result = client->Execute(batch);
  ASSERT_TRUE(result.ok());
  for (const auto& one : result->results) {
    EXPECT_EQ(ReasonOf(one.status()), Reason::kUnknownSession);
  }
  EXPECT_TRUE(own_.operations.empty());
}

TEST_F(TenantSessionsTest, ARequestFindsTheSessionThatAnotherOpened) {
  const auto sessions = Make();
  EXPECT_EQ(sessions->Use("red", "token of red"), nullptr);
  const auto first = Get(*sessions, "red");
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(sessions->Use("red", "token of red"), *first);
  EXPECT_EQ(*Get(*sessions, "red"), *first);
  EXPECT_EQ(opened_, 1);

  over_ = true;  // The client has noticed that its session is over.
  EXPECT_EQ(sessions->Use("red", "token of red"), nullptr);
  over_ = false;
  sessions->Forget("red", nullptr);  // Another one.
  EXPECT_EQ(sessions->Use("red", "token of red"), *first);
  sessions->Forget("red", *first);
  const auto second = Get(*sessions, "red");
  ASSERT_TRUE(second.ok());
  EXPECT_NE(*second, *first);
  EXPECT_EQ(opened_, 2);
}

TEST_F(TenantSessionsTest, EachTokenIsCheckedByTheDaemon) {
  const auto sessions = Make();
  const auto first = Get(*sessions, "red");
  ASSERT_TRUE(first.ok());
  // A token that the session was not opened with.
  EXPECT_EQ(sessions->Use("red", "second token of red"), nullptr);
  EXPECT_EQ(ReasonOf(sessions->Get("red", "token of blue").status()), Reason::kUnauthenticated);
  EXPECT_EQ(sessions->Use("red", "token of blue"), nullptr);
  EXPECT_EQ(*sessions->Get("red", "second token of red"), *first);
  EXPECT_EQ(sessions->Use("red", "second token of red"), *first);
  EXPECT_EQ(*sessions->Get("red", "second token of red"), *first);
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(sessions->Get("red", "token of blue").ok());
  EXPECT_EQ(opened_, 1);
  EXPECT_EQ(checked_, 2) << "a flood of refused requests costs one call";
}

TEST_F(TenantSessionsTest, NoSessionOfAnotherRunOfTheDaemonIsUsed) {
  const auto sessions = Make();
  // The daemon has been started again: it opens the tenant's session, but does not know the own
  // one.
  own_status_ = MakeError(Reason::kStaleSession, "of an earlier daemon");
  EXPECT_EQ(ReasonOf(Get(*sessions, "red").status()), Reason::kStaleSession);
  EXPECT_EQ(sessions->Use("red", "token of red"), nullptr);
}

}  // namespace
}  // namespace pagoda
