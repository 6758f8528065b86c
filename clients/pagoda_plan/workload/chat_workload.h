#ifndef PAGODA_CLIENTS_PAGODA_PLAN_WORKLOAD_CHAT_WORKLOAD_H_
#define PAGODA_CLIENTS_PAGODA_PLAN_WORKLOAD_CHAT_WORKLOAD_H_

#include <cstdint>
#include <functional>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "manager/api/cache_client.h"

namespace pagoda {

struct ChatWorkloadOptions {
  uint32_t conversations = 64;
  uint32_t turns = 4;  // The turns of each conversation.
  uint32_t concurrency =
      16;  // Conversations that hold a sequence at once; at most kMaxConcurrency.
  uint32_t system_tokens = 96;  // The same for all conversations.
  uint32_t user_tokens = 32;    // New in each turn.
  uint32_t reply_tokens = 48;   // Appended in each turn, one a step.
  uint64_t seed = 1;
  // How long the workload waits without progress before it gives up: other sessions hold the
  // blocks.
  absl::Duration patience = absl::Seconds(30);
};

// Each conversation adds at most two operations to a batch.
inline constexpr uint32_t kMaxConcurrency = kMaxBatchOperations / 2;

struct ChatWorkloadReport {
  uint64_t turns_done = 0;
  uint64_t turns_total = 0;
  // Tokens of all added sequences, also of those added after a deferral.
  uint64_t prompt_tokens = 0;
  uint64_t matched_tokens = 0;  // The part of prompt_tokens that was found in the cache.
  uint64_t reply_tokens = 0;
  uint64_t operations = 0;
  uint64_t batches = 0;
  uint64_t deferrals = 0;  // How often a conversation got no blocks and was queued again.
  // The effects of block copies that failed in the daemon.
  uint64_t shortened = 0;  // How often a sequence lost computed tokens and continued with fewer.
  uint64_t lost = 0;       // Sequences that could only be freed and were added again.
  uint64_t refused = 0;    // Operations that were refused because they did not know a loss yet.
  absl::Duration elapsed;
  absl::Duration batch_latency_p50;
  absl::Duration batch_latency_p99;

  double hit_rate() const;
  double operations_per_second() const;
};

// Called after each batch with the report so far. Its latencies are not filled in yet.
enum class Next { kContinue, kStop };
using BatchCallback = std::function<Next(const ChatWorkloadReport&)>;

// Runs seeded multi-turn conversations against a cache, in the pattern of an engine with continuous
// batching. There is no model: the workload writes no KV bytes and waits for no copies. Its
// sequences have their own cache salt, so that no engine reads the KV that was never computed.
//
// A conversation's prompt is the whole history (the system prompt, then the users' tokens and the
// replies so far) and new user tokens. All active conversations advance together, in one batch per
// decode step. A new turn adds its sequence. A running reply appends one token. A finished reply
// commits and frees. A conversation that gets no blocks frees its sequence and waits until others
// have progressed. It then continues where it was. After that, the workload keeps fewer
// conversations active for a while.
//
// The conversations' tokens depend only on the options, not on the order in which they run.
//
// Errors: INVALID_ARGUMENT for options that are zero or above their limit; INVALID_COUNT if one
// conversation does not fit the cache; BLOCKS_EXHAUSTED, TOO_MANY_SEQUENCES or
// SEQUENCE_BYTES_EXHAUSTED (the last refusal) or KV_LOST if there was no progress for `patience`;
// those of Execute; those of any operation that fails neither for want of capacity nor because of a
// loss that the answer names. After an error the client's session may still hold sequences. Closing
// it frees them.
absl::StatusOr<ChatWorkloadReport> RunChatWorkload(CacheClient& client,
                                                   const ChatWorkloadOptions& options,
                                                   const BatchCallback& on_batch);

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_PAGODA_PLAN_WORKLOAD_CHAT_WORKLOAD_H_
