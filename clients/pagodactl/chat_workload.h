#ifndef PAGODA_CLIENTS_PAGODACTL_CHAT_WORKLOAD_H_
#define PAGODA_CLIENTS_PAGODACTL_CHAT_WORKLOAD_H_

#include <cstdint>
#include <functional>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "manager/cache_client.h"

namespace pagoda {

struct ChatWorkloadOptions {
  uint32_t conversations = 64;
  uint32_t turns = 4;  // Of each conversation.
  uint32_t concurrency =
      16;  // Conversations that hold a sequence at once; at most kMaxConcurrency.
  uint32_t system_tokens = 96;  // The same for all conversations.
  uint32_t user_tokens = 32;    // New in each turn.
  uint32_t reply_tokens = 48;   // Appended in each turn, one a step.
  uint64_t seed = 1;
  // How long nothing may move before the workload gives up: somebody else holds the blocks.
  absl::Duration patience = absl::Seconds(30);
};

// Each conversation adds at most two operations to a batch.
inline constexpr uint32_t kMaxConcurrency = kMaxBatchOperations / 2;

struct ChatWorkloadReport {
  uint64_t turns_done = 0;
  uint64_t turns_total = 0;
  uint64_t prompt_tokens = 0;   // Of all sequences added, those added again after a deferral too.
  uint64_t matched_tokens = 0;  // Of these, found in the cache.
  uint64_t reply_tokens = 0;
  uint64_t operations = 0;
  uint64_t batches = 0;
  uint64_t deferrals = 0;  // A conversation found no room and waited for its turn again.
  // Copies of blocks that failed in the daemon: how often a sequence lost computed tokens and went
  // on with fewer, how many sequences lost what a sliding window had passed and had to begin anew,
  // and the operations that were refused because they did not know of a loss yet.
  uint64_t shortened = 0;
  uint64_t lost = 0;
  uint64_t refused = 0;
  absl::Duration elapsed;
  absl::Duration batch_latency_p50;
  absl::Duration batch_latency_p99;

  double hit_rate() const;
  double operations_per_second() const;
};

// Called after each batch with the report so far, its latencies not yet filled in.
enum class Next { kContinue, kStop };
using BatchCallback = std::function<Next(const ChatWorkloadReport&)>;

// Runs seeded multi-turn conversations against a cache, as an engine with continuous batching
// would, but without a model: no KV bytes are written, and no copies are waited for. So that nobody
// ever reads what was not computed, the sequences live under a cache salt of their own.
//
// A conversation's prompt is the whole history (the system prompt, then the users' tokens and the
// replies so far) and new user tokens. All active conversations advance together, one batch a
// decode step: a new turn adds its sequence; a running reply appends one token; a finished one
// commits and frees. A conversation that finds no room gives its blocks back, waits until others
// have moved, and goes on where it was; the workload keeps fewer conversations active for a while.
//
// What the conversations say depends on the options alone, not on the order in which they run.
//
// Errors: INVALID_ARGUMENT for options that are zero or beyond their limit; INVALID_COUNT where one
// conversation does not fit the cache; BLOCKS_EXHAUSTED, TOO_MANY_SEQUENCES or
// SEQUENCE_BYTES_EXHAUSTED when nothing has moved for `patience`, by what was wanting last;
// those of Execute, and of any operation that fails for another reason than room or a loss that the
// answer names. The client's
// session may hold sequences then; closing it frees them.
absl::StatusOr<ChatWorkloadReport> RunChatWorkload(CacheClient& client,
                                                   const ChatWorkloadOptions& options,
                                                   const BatchCallback& on_batch);

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_PAGODACTL_CHAT_WORKLOAD_H_
