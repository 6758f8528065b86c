// The client's promise: its results are those of a connection that never breaks. The same random
// batches go to one daemon directly, and to another through a proxy that cuts connections. Results,
// revisions and the remaining content of the caches must be equal.
#include <algorithm>
#include <random>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "clients/cpp/grpc_cache_client.h"
#include "gtest/gtest.h"
#include "server/daemon.h"
#include "tests/clients/cutting_proxy.h"
#include "tests/clients/temp_directory.h"
#include "tests/server/test_daemon.h"

namespace pagoda {
namespace {

constexpr int kBatches = 400;
// A batch is a few pieces in each direction. A new connection is some more.
constexpr uint32_t kLoseOneIn = 16;
constexpr uint64_t kSequences = 12;

// Random operations on a few sequences. Many fail, because only the daemon knows which sequences
// and reserved tokens exist.
class RandomBatches {
 public:
  std::vector<Operation> Next() {
    std::vector<Operation> batch(1 + random_() % 4);
    for (Operation& operation : batch) operation = NextOperation();
    return batch;
  }

 private:
  Operation NextOperation() {
    const SequenceId sequence(1 + random_() % kSequences);
    switch (random_() % 10) {
      case 0:
      case 1:
        return AddSequence{.sequence = sequence, .tokens = Prompt()};
      case 2:
      case 3:
        return FreeSequence{sequence};
      case 4:
        return ForkSequence{sequence, SequenceId(1 + random_() % kSequences)};
      case 5:
        return TruncateSequence{sequence, 1 + static_cast<uint32_t>(random_() % 6)};
      case 6:
        return MatchPrefix{.tokens = Prompt()};
      case 7:
        return CommitTokens{.sequence = sequence, .computed_tokens = 8};
      default:
        return AppendTokens{.sequence = sequence,
                            .tokens = {static_cast<TokenId>(random_() % 3)},
                            .computed_tokens = random_() % 2 == 0 ? 0u : 8u};
    }
  }

  std::vector<TokenId> Prompt() {
    std::vector<TokenId> tokens(8 + random_() % 12);
    for (TokenId& token : tokens) token = static_cast<TokenId>(random_() % 2);
    return tokens;
  }

  std::mt19937_64 random_{11};
};

std::string TextOf(const std::vector<BlockTable>& tables) {
  std::string text;
  for (const BlockTable& table : tables) {
    absl::StrAppend(&text, " from ", table.first_block, ":");
    for (const BlockHandle& block : table.blocks) {
      absl::StrAppend(&text, " ", block.id.value(), "/", block.generation.value(), "@",
                      block.slot.value());
    }
  }
  return text;
}

// Tickets are left out, because the time of a copy varies.
struct ResultText {
  std::string operator()(const AddedSequence& result) const {
    return absl::StrCat("added ", result.matched_tokens, TextOf(result.tables));
  }
  std::string operator()(const AppendedTokens& result) const {
    return absl::StrCat("appended ", result.token_count, TextOf(result.added));
  }
  std::string operator()(const ForkedSequence& result) const {
    return absl::StrCat("forked ", result.computed_tokens, TextOf(result.tables));
  }
  std::string operator()(const TruncatedSequence& result) const {
    return absl::StrCat("truncated ", result.computed_tokens, TextOf(result.tables));
  }
  std::string operator()(const MatchedPrefix& result) const {
    return absl::StrCat("matched ", result.matched_tokens);
  }
  std::string operator()(const CommittedTokens& result) const {
    return absl::StrCat("committed ", result.token_count);
  }
  template <class Other>
  std::string operator()(const Other&) const {
    return "done";
  }
};

std::string TextOf(const absl::StatusOr<BatchResult>& batch) {
  if (!batch.ok()) return batch.status().ToString();
  std::string text = absl::StrCat("revision ", batch->revision.value());
  for (const auto& result : batch->results) {
    absl::StrAppend(&text, "; ",
                    result.ok() ? std::visit(ResultText{}, *result) : result.status().ToString());
  }
  return text;
}

class LostAnswersTest : public testing::Test {
 protected:
  static std::unique_ptr<server::Daemon> StartDaemon(const server::Config& config) {
    auto daemon = server::Daemon::Start(config);
    EXPECT_TRUE(daemon.ok()) << daemon.status();
    return *std::move(daemon);
  }

  static std::unique_ptr<CacheClient> Open(const std::string& socket) {
    auto client = OpenGrpcCacheClient({.endpoint = absl::StrCat("unix:", socket),
                                       .client_name = "test",
                                       .timeout = absl::Seconds(60)});
    EXPECT_TRUE(client.ok()) << client.status();
    return *std::move(client);
  }

  const TempDirectory directory_;
  const server::Config plain_config_ = server::TestConfig();
  const server::Config cut_config_ = server::TestConfig();
  const std::unique_ptr<server::Daemon> plain_ = StartDaemon(plain_config_);
  const std::unique_ptr<server::Daemon> cut_ = StartDaemon(cut_config_);
  CuttingProxy proxy_{directory_.File("proxy.sock"), cut_config_.server.unix_socket};
};

TEST_F(LostAnswersTest, ResultsAreThoseOfAConnectionThatNeverBreaks) {
  auto expected = Open(plain_config_.server.unix_socket);
  auto tested = Open(directory_.File("proxy.sock"));
  proxy_.LoseOneIn(kLoseOneIn);
  RandomBatches batches;
  for (int i = 0; i < kBatches; ++i) {
    const std::vector<Operation> batch = batches.Next();
    ASSERT_EQ(TextOf(tested->Execute(batch)), TextOf(expected->Execute(batch))) << "batch " << i;
  }
  EXPECT_GT(proxy_.cuts(), kBatches / 40);
  proxy_.LoseOneIn(0);
  expected.reset();
  tested.reset();
  for (server::Daemon* daemon : {plain_.get(), cut_.get()}) {
    daemon->manager().CheckInvariants();
    EXPECT_EQ(daemon->manager().Stats().sequences, 0u);
    EXPECT_EQ(daemon->manager().Stats().sessions, 0u);
  }
  const TierOccupancy kept = plain_->manager().Stats().windows[0].tiers[0];
  EXPECT_EQ(cut_->manager().Stats().windows[0].tiers[0].cached, kept.cached);
  EXPECT_EQ(cut_->manager().Stats().windows[0].tiers[0].free, kept.free);
}

}  // namespace
}  // namespace pagoda
