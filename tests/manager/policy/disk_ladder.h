// A core with a tier in memory and one on disk, for requests that run one after another. Files are
// written and read at once.
#ifndef PAGODA_TESTS_MANAGER_POLICY_DISK_LADDER_H_
#define PAGODA_TESTS_MANAGER_POLICY_DISK_LADDER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "manager/block_manager.h"
#include "manager/sequences/cached_prefixes.h"
#include "manager/sequences/running_sequences.h"
#include "tests/manager/fixtures/prompt_of.h"
#include "tests/manager/fixtures/testing.h"

namespace pagoda {

class DiskLadder {
 public:
  static constexpr uint32_t kBlockTokens = 2;

  struct Options {
    uint32_t memory_blocks = 0;
    uint32_t disk_blocks = 0;
    std::string policy = "lru";
    // Instead of the policy of that name, if it is set.
    decltype(ManagerOptions::make_policies) make_policies = nullptr;
  };
  explicit DiskLadder(const Options& options) {
    core_ = *BlockManager::Create({.layout = TinyLayout(kBlockTokens),
                                   .tiers = {{.name = "dram", .blocks = {options.memory_blocks}},
                                             {.name = "nvme",
                                              .medium = Medium::kDisk,
                                              .blocks = {options.disk_blocks},
                                              .min_priority = Priority{0}}},
                                   .eviction_policy = options.policy,
                                   .make_policies = options.make_policies,
                                   .record_events = RecordEvents::kNo,
                                   .epoch = Epoch{1},
                                   .start_time = now_});
    session_ = core_->OpenSession("test", absl::InfiniteDuration(), now_)->ref.id;
  }

  // A request over blocks with these ids is fetched from the disk as far as it is there, computed
  // and freed; then what it brought is written. Returns the blocks that were cached.
  uint32_t Run(absl::Span<const uint64_t> ids) {
    now_ += absl::Seconds(1);
    tokens_.clear();
    for (const uint64_t id : ids) {
      tokens_.push_back(static_cast<TokenId>(id));
      tokens_.push_back(static_cast<TokenId>(id >> 32));
    }
    tokens_.push_back(0);  // The last token is never matched.
    Fetch();
    const SequenceId sequence{++sequences_};
    const auto computed = static_cast<uint32_t>(tokens_.size() - 1);
    const auto added =
        core_->sequences().AddSequence(session_, sequence, PromptOf({}, tokens_, computed), now_);
    if (!added.ok()) return 0;  // It does not fit.
    const uint32_t matched = added->matched_tokens;
    Settle();
    EXPECT_TRUE(core_->sequences().CommitTokens(session_, sequence, {}, computed, now_).ok());
    EXPECT_TRUE(core_->sequences().FreeSequence(session_, sequence, now_).ok());
    for (bool more = true; more;) {
      core_->Maintain(now_, 0);
      more = Settle();
    }
    return matched / kBlockTokens;
  }

  // Whether a block that begins with this id has a copy on disk.
  bool HasOnDisk(uint64_t id) const {
    for (const TreeEntry& entry : core_->DumpTree(kFullAttention)) {
      if (entry.tokens.front() != static_cast<TokenId>(id)) continue;
      return entry.tier == Tier(1) || entry.lower.contains(Tier(1));
    }
    return false;
  }
  DiskTierStats disk() const { return core_->Stats().windows[0].disk; }
  BlockManager& core() { return *core_; }

 private:
  // A fetch takes only a part of the memory, so a long prompt needs several. What they bring can
  // displace other blocks of the prompt, so they need not come to an end.
  void Fetch() {
    const NamespaceKey name_space;
    for (int i = 0; i < 8; ++i) {
      const auto prefetched = core_->prefixes().Prefetch(
          {.name_space = name_space, .tokens = tokens_}, now_,
          {.target = PrefetchTarget::kMemory, .deadline = absl::InfiniteFuture()});
      if (!prefetched.ok() || prefetched->fetched_blocks == 0) return;
      Settle();
    }
  }

  // Ends everything that was ordered. Returns whether there was something.
  bool Settle() {
    bool any = false;
    for (bool more = true; more; any = any || more) {
      more = false;
      for (const Order& order : core_->TakeOrders()) {
        if (order.kind != Order::Kind::kMove) continue;
        core_->Complete(order.lane, order.ticket, absl::OkStatus(), now_);
        more = true;
      }
    }
    return any;
  }

  absl::Time now_ = absl::FromUnixSeconds(1000);
  std::unique_ptr<BlockManager> core_;
  SessionId session_;
  uint64_t sequences_ = 0;
  std::vector<TokenId> tokens_;
};

}  // namespace pagoda

#endif  // PAGODA_TESTS_MANAGER_POLICY_DISK_LADDER_H_
