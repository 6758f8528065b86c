// A cache that tests drive step by step through its public API. After every step the fixture checks
// all invariants, rule 5, the events' law, and the KV of every running sequence. It keeps the KV as
// numbers and as the bytes of pools: opaque ones, K only, float8 with scales.
#ifndef PAGODA_TESTS_CONFORMANCE_CONFORMANCE_H_
#define PAGODA_TESTS_CONFORMANCE_CONFORMANCE_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/error.h"
#include "manager/api/operation.h"
#include "manager/block_manager.h"
#include "tests/conformance/pool_bytes.h"
#include "tests/conformance/slot_memory.h"
#include "tests/events/shadow_allocations.h"
#include "tests/events/shadow_tree.h"
#include "tests/manager/fixtures/picture.h"

namespace pagoda {

using Tokens = std::vector<TokenId>;

// first, first + 1, ... up to and including last.
Tokens Range(TokenId first, TokenId last);
Tokens operator+(Tokens front, const Tokens& back);

// The result at the index of Op in the two variants.
template <class Op, size_t kIndex = 0>
struct ResultOfOperation {
  using type = typename std::conditional_t<
      std::is_same_v<Op, std::variant_alternative_t<kIndex, OperationVariant>>,
      std::variant_alternative<kIndex, OperationResultVariant>,
      ResultOfOperation<Op, kIndex + 1>>::type;
};
template <class Op>
struct ResultOfOperation<Op, std::variant_size_v<OperationVariant>> {
  using type = void;
};
template <class Op>
using ResultOf = typename ResultOfOperation<Op>::type;

// The events of one type, in order.
template <class T>
std::vector<T> OfType(const std::vector<Event>& events) {
  std::vector<T> found;
  for (const Event& event : events) {
    if (const T* what = std::get_if<T>(&event.what)) found.push_back(*what);
  }
  return found;
}

// In the words of peers, a "used" block is active, pinned or in flight here (Used()), and a "free"
// one is free or cached (Available()).
class ConformanceTest : public ::testing::Test {
 protected:
  struct WindowBlocks {
    WindowSize window = kFullAttention;
    uint32_t primary = 0;
    uint32_t lower = 0;
  };
  struct Setup {
    uint32_t tokens_per_block = 4;
    std::vector<WindowBlocks> windows;  // Ascending.
    std::vector<TierSpec> tiers;        // The tiers of a cache of one window, instead of `windows`.
    Priority offload_min_priority = kDefaultPriority;
    uint32_t offload_watermark_permille = 0;
    uint32_t pin_budget_permille = 1000;
    uint32_t max_holes = 0;
    LifecycleEvents lifecycle_events = LifecycleEvents::kRaw;
    RecordEvents record_events = RecordEvents::kYes;
  };
  // When an ordered copy is carried out: by the call that orders it, or by Complete().
  enum class Copies { kAtOnce, kByHand };

  void Make(Setup setup);
  void Make(uint32_t tokens_per_block, uint32_t primary, uint32_t lower = 0) {
    Make({.tokens_per_block = tokens_per_block, .windows = {{.primary = primary, .lower = lower}}});
  }
  // Checks that everything holds at the end of a test.
  void TearDown() override;

  // --- Operations. Each one checks the cache afterwards. ---

  template <class Op>
  absl::StatusOr<ResultOf<Op>> Run(Op op) {
    return Run(session_, std::move(op));
  }
  template <class Op>
  absl::StatusOr<ResultOf<Op>> Run(SessionId session, Op op) {
    absl::StatusOr<OperationResult> result = core_->Execute(session, std::move(op), now_);
    AfterCall();
    if (!result.ok()) return result.status();
    return std::get<ResultOf<Op>>(*std::move(result));
  }
  // Runs an operation that fails for this reason, and checks that nothing visible has changed.
  template <class Op>
  void ExpectRefused(Reason reason, Op op) {
    const std::string before = Picture();
    const auto result = Run(std::move(op));
    EXPECT_EQ(ReasonOf(result.status()), reason) << result.status();
    EXPECT_EQ(Picture(), before) << "a refused operation leaves no trace";
  }

  // Returns the matched tokens.
  uint32_t Add(AddSequence prompt);
  uint32_t Add(uint64_t id, const Tokens& prompt, const NamespaceKey& name_space = {}) {
    return Add({.sequence = SequenceId{id}, .name_space = name_space, .tokens = prompt});
  }
  // Writes the KV of the tokens up to `computed_tokens` and declares them computed.
  void Compute(uint64_t id, uint32_t computed_tokens) { Commit(id, {}, computed_tokens); }
  void Commit(uint64_t id, const Tokens& tokens, uint32_t computed_tokens);
  // The same for a keyed sequence. REQUIRES: capacity for the keys is reserved.
  void CommitKeys(uint64_t id, const std::vector<ClientKey>& keys, uint32_t computed_tokens);
  // Reserves capacity for `tokens` and names them.
  AppendedTokens Append(uint64_t id, const Tokens& tokens, uint32_t computed_tokens = 0);
  // The same in one call. The KV is written first, into the capacity reserved before.
  AppendedTokens ComputeAndAppend(uint64_t id, uint32_t computed_tokens, const Tokens& tokens);
  void Free(uint64_t id);
  // Frees a sequence as peers do: without the KV of its last token.
  void FreeAsPeersDo(uint64_t id);
  // A whole request that generates nothing: adds a sequence, computes all of it, frees it. Returns
  // the matched tokens.
  uint32_t Serve(uint64_t id, const Tokens& prompt, const SequenceRetention& retention = {});
  void Fork(uint64_t id, uint64_t new_id);
  TruncatedSequence Truncate(uint64_t id, uint32_t token_count);
  // What an AddSequence would match.
  uint32_t Match(const Tokens& tokens, const NamespaceKey& name_space = {});

  void Advance(absl::Duration duration) { now_ += duration; }
  // Applies everything that the clock has made due.
  void Maintain(uint32_t max_blocks = 0);

  // --- Copies by hand ---

  // The orders that were taken and not completed, by ticket.
  const std::map<Ticket, Order>& pending() const { return pending_; }
  // Carries out one of them, or lets it fail. After a failure the target's bytes are garbage.
  void Complete(Ticket ticket, const absl::Status& status = absl::OkStatus());
  void CompleteAll();
  virtual void CarryOut(const Order& order);
  WindowSize WindowOf(const Order& order) const {
    return core_->info().windows[order.window_index].window;
  }
  // The sequences with losses that no commit has named yet. From now on the engine knows of these.
  std::vector<ShortenedSequence> ReadShortened();

  // --- The visible state ---

  TierOccupancy InTier(Tier tier, WindowSize window = kFullAttention) const;
  TierOccupancy Primary(WindowSize window = kFullAttention) const {
    return InTier(kPrimaryTier, window);
  }
  TierOccupancy Lower(WindowSize window = kFullAttention) const { return InTier(Tier(1), window); }
  uint32_t Used(WindowSize window = kFullAttention) const;
  uint32_t Available(WindowSize window = kFullAttention) const;

  DescribedSequence Describe(uint64_t id);
  std::vector<BlockHandle> Table(uint64_t id, WindowSize window = kFullAttention);
  // The cached block at the end of this prefix. The prefix's last tokens can be a tail.
  std::optional<TreeEntry> Cached(const Tokens& prefix, const NamespaceKey& name_space = {},
                                  WindowSize window = kFullAttention) const;
  // The same; fails the test if there is none.
  TreeEntry RequireCached(const Tokens& prefix, const NamespaceKey& name_space = {},
                          WindowSize window = kFullAttention) const;
  size_t CachedBlocks(WindowSize window = kFullAttention) const {
    return core_->DumpTree(window).size();
  }
  // The events since the last call.
  std::vector<Event> TakeEvents() { return std::exchange(events_, {}); }
  // The only event since then, which must be of this type.
  template <class T>
  T TakeOnly() {
    const std::vector<Event> events = TakeEvents();
    const std::vector<T> found = OfType<T>(events);
    EXPECT_EQ(events.size(), 1u);
    EXPECT_EQ(found.size(), 1u);
    return found.size() == 1 ? found.front() : T{};
  }

  // Everything visible of the cache, as text.
  std::string Picture() const { return PictureOf(*core_); }

  absl::Time now_ = absl::UnixEpoch();
  Copies copies_ = Copies::kAtOnce;
  std::unique_ptr<BlockManager> core_;
  SessionId session_;

 private:
  // The engine's view of a sequence.
  struct Running {
    NamespaceKey name_space;
    std::vector<uint64_t> kv;  // What each token's KV must be: a function of all tokens up to it.
    BlockHash last_key;        // In a keyed sequence: the hash of the chain of its keys.
    uint32_t computed_tokens = 0;
    uint32_t known_losses = 0;
  };

  void AfterCall();
  void Check();
  void CheckKv();
  // A token's place.
  struct Place {
    WindowSize window;
    SlotRef slot;
    uint32_t offset = 0;
  };
  void ForEachToken(const BlockTable& table, uint64_t begin, uint64_t end,
                    const std::function<void(const Place& place, uint64_t token)>& visit);
  void WriteKv(uint64_t id, uint32_t begin, uint32_t end);
  void Extend(Running& running, const Tokens& tokens);
  void Extend(Running& running, const std::vector<ClientKey>& keys);

  std::optional<SlotMemory> memory_;
  std::unique_ptr<PoolBytes> bytes_;  // The same KV in real pools of every kind.
  ShadowTree shadow_;
  LifecycleEvents lifecycle_events_ = LifecycleEvents::kRaw;
  ShadowAllocations allocations_;  // Compared if all lifecycle events are recorded.
  std::vector<Event> events_;
  std::map<Ticket, Order> pending_;
  std::map<uint64_t, Running> running_;  // The running sequences of session_.
  bool copy_failed_ = false;             // Sequences may have fewer computed tokens than told.
};

}  // namespace pagoda

#endif  // PAGODA_TESTS_CONFORMANCE_CONFORMANCE_H_
