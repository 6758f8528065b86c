// The cache's core as the replay of a trace uses it.
#ifndef PAGODA_CLIENTS_PAGODA_PLAN_REPLAY_REPLAY_CORE_H_
#define PAGODA_CLIENTS_PAGODA_PLAN_REPLAY_REPLAY_CORE_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "clients/pagoda_plan/replay/replay.h"
#include "clients/pagoda_plan/trace/trace.h"
#include "manager/api/sequence_calls.h"
#include "manager/block_manager.h"

namespace pagoda {

// Appends the tokens of the block with this id: the id in two halves, then the positions. Different
// ids have different first or second tokens. REQUIRES: tokens_per_block >= 2.
void AppendBlockTokens(uint64_t hash_id, uint32_t tokens_per_block, std::vector<TokenId>& tokens);

// The blocks of a first tier that evicts nothing, even while requests hold their blocks. Errors:
// INVALID_ARGUMENT (more than 2^32 - 1).
absl::StatusOr<uint32_t> UnlimitedBlocks(absl::Span<const TraceRequest> requests,
                                         const ReplayOptions& options);

// A BlockManager with one session. Its copies between tiers, and its reads and writes of a disk,
// complete as soon as they are ordered.
// Thread-compatible. Each call brings the time, which never goes back. Counts into `report`, which
// must outlive the core.
class ReplayCore {
 public:
  // Errors: those of BlockManager::Create() and CacheLayout::Create().
  static absl::StatusOr<std::unique_ptr<ReplayCore>> Create(
      const std::vector<uint32_t>& tier_blocks, const ReplayOptions& options, ReplayReport& report);

  // Opens a sequence with these tokens, and with blocks for `reserved_tokens`. Returns the matched
  // tokens. Errors: those of RunningSequences::AddSequence().
  absl::StatusOr<uint32_t> Add(SequenceId sequence, absl::Span<const TokenId> tokens,
                               uint32_t reserved_tokens, absl::Time now);
  // Takes blocks for `count` more tokens. Errors: those of RunningSequences::ReserveTokens().
  absl::Status Reserve(SequenceId sequence, uint32_t count, absl::Time now);
  // Names the next tokens, and caches the full blocks of the first `computed_tokens`. REQUIRES:
  // they have blocks.
  void Commit(SequenceId sequence, absl::Span<const TokenId> tokens, uint32_t computed_tokens,
              absl::Time now);
  // Ends the sequence. Its full blocks stay cached.
  void Free(SequenceId sequence, absl::Time now);

  // Updates the counters of the report that the manager keeps.
  void ReadCounters();

 private:
  ReplayCore(std::unique_ptr<BlockManager> manager, SessionId session, const ReplayOptions& options,
             ReplayReport& report)
      : manager_(std::move(manager)),
        session_(session),
        tokens_per_block_(options.tokens_per_block),
        has_disk_(options.last_tier == LastTier::kDisk),
        report_(report) {}

  // Carries out all orders. Returns whether there were any.
  bool FinishOrders(absl::Time now);
  void FetchFromDisk(const SequencePrompt& prompt, absl::Time now);
  void WriteToDisk(absl::Time now);
  ReplayedTier& TierOf(SlotRef slot) { return report_.tiers[slot.tier.value()]; }

  const std::unique_ptr<BlockManager> manager_;
  const SessionId session_;
  const uint32_t tokens_per_block_;
  const bool has_disk_;
  // Blocks that matched because they were fetched for their request. The manager counts them as
  // hits of the tier above the disk.
  uint64_t fetched_blocks_hit_ = 0;
  ReplayReport& report_;
};

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_PAGODA_PLAN_REPLAY_REPLAY_CORE_H_
