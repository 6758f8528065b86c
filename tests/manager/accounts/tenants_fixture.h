// The fixture of the tests of tenants: a small cache, and calls that check every invariant.
#ifndef PAGODA_TESTS_MANAGER_ACCOUNTS_TENANTS_FIXTURE_H_
#define PAGODA_TESTS_MANAGER_ACCOUNTS_TENANTS_FIXTURE_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "manager/accounts/tenants.h"
#include "manager/block_manager.h"
#include "manager/cache_lists.h"
#include "tests/manager/fixtures/host_tiers.h"
#include "tests/manager/fixtures/testing.h"

namespace pagoda {

inline constexpr TenantId kRed{1}, kBlue{2}, kOpen{3};
inline constexpr uint32_t kBlocks = 16;
inline constexpr uint32_t kTokensPerBlock = 4;

class TenantsTest : public ::testing::Test {
 protected:
  void Make(std::vector<TenantOptions> tenants, uint32_t lower = 0) {
    core_ = *BlockManager::Create({.layout = TinyLayout(kTokensPerBlock),
                                   .tiers = HostTiers({kBlocks}, {lower}),
                                   .pin_budget_permille = 500,
                                   .epoch = Epoch{1},
                                   .tenants = std::move(tenants)});
  }
  void MakeThree() { Make({{.name = "red"}, {.name = "blue"}, {.name = "open", .shares = true}}); }
  SessionId Open(TenantId tenant) {
    return core_->OpenSession("test", absl::InfiniteDuration(), now_, tenant)->ref.id;
  }
  // A prompt of `blocks` blocks that begins with `first`.
  static std::vector<TokenId> Prompt(TokenId first, uint32_t blocks) {
    std::vector<TokenId> tokens(size_t{blocks} * kTokensPerBlock, 7);
    tokens.front() = first;
    return tokens;
  }
  absl::StatusOr<OperationResult> Run(SessionId session, Operation operation) {
    auto result = core_->Execute(session, operation, now_);
    core_->CheckInvariants();
    return result;
  }
  // Adds, computes and frees a prompt, so that it is cached. Returns the tokens that matched.
  uint32_t Cache(SessionId session, const std::vector<TokenId>& prompt, NamespaceKey key = {}) {
    const SequenceId name{++last_sequence_};
    const auto added =
        Run(session, AddSequence{.sequence = name, .name_space = key, .tokens = prompt});
    EXPECT_TRUE(added.ok()) << added.status();
    if (!added.ok()) return 0;
    const auto computed = static_cast<uint32_t>(prompt.size());
    EXPECT_TRUE(Run(session, CommitTokens{.sequence = name, .computed_tokens = computed}).ok());
    EXPECT_TRUE(Run(session, FreeSequence{name}).ok());
    return std::get<AddedSequence>(*added).matched_tokens;
  }
  uint32_t Match(SessionId session, const std::vector<TokenId>& prompt) {
    const auto matched = Run(session, MatchPrefix{.tokens = prompt});
    return std::get<MatchedPrefix>(*matched).matched_tokens;
  }
  uint32_t Used(TenantId tenant) const {
    return core_->lists().TenantUses()[tenant.value()].uses.front().used_blocks;
  }

  absl::Time now_ = absl::UnixEpoch();
  uint64_t last_sequence_ = 0;
  std::unique_ptr<BlockManager> core_;
};

}  // namespace pagoda

#endif  // PAGODA_TESTS_MANAGER_ACCOUNTS_TENANTS_FIXTURE_H_
