// Requests that wait until their cached tokens have come from disk into memory.
#ifndef PAGODA_ENGINE_SCHEDULE_PREFIX_FETCHES_H_
#define PAGODA_ENGINE_SCHEDULE_PREFIX_FETCHES_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/stopwatch.h"
#include "engine/schedule/fetch_forecast.h"
#include "manager/api/cache_client.h"
#include "manager/api/operation.h"

namespace pagoda {

// How much of a prompt is cached.
struct CachedPrefix {
  uint32_t matched_tokens = 0;  // A sequence would match these now.
  uint32_t cached_tokens = 0;   // See MatchedPrefix.
  uint32_t disk_tokens = 0;     // The part of the cached tokens that is only on disk.

  static CachedPrefix From(const MatchedPrefix& match) {
    return {.matched_tokens = match.matched_tokens,
            .cached_tokens = match.cached_tokens,
            .disk_tokens = match.tokens_by_tier.empty() ? 0 : match.tokens_by_tier.back()};
  }
  uint32_t memory_tokens() const { return cached_tokens - std::min(disk_tokens, cached_tokens); }
};

// Decides which waiting samples get a fetch, and how long each waits for it. The caller sends the
// operations to the cache and reports the answers here. A sample's name is its request's number and
// its own. Thread-compatible. Reads no clock.
//
// The deadline of a sample is the time of its first fetch's order plus the predicted time to
// compute its tokens. Until then it can order another fetch after one that brought only a part,
// because the cache limits the size of a fetch. A fetch that is late, or brings nothing, is the
// sample's last.
//
// Invariants
// 1. This class knows only samples that wait for admission and had something on disk.
// 2. A sample stops fetching in Heed, however the fetch ends.
class PrefixFetches {
 public:
  using Name = std::pair<uint64_t, uint32_t>;
  struct Counts {
    uint64_t fetches = 0;            // Ordered.
    uint64_t late_fetches = 0;       // Fetches that had not brought everything in time.
    uint64_t fetches_not_worth = 0;  // Samples that computed tokens although they were on disk.
  };

  explicit PrefixFetches(const CacheInfo& cache) { Attach(cache); }
  // Continues in another session. Earlier orders are void; the learnt speeds stay.
  void Attach(const CacheInfo& cache);

  // --- The lookup of a sample ---

  // Whether to ask how much of it is cached beyond the match.
  bool WantsMatch(Name sample) const;
  // Reports how much of it is cached now. Closes the fetch that it waited for.
  void Probed(Name sample, const CachedPrefix& cached, SteadyTime now);
  // How long the sample is to wait for a fetch, which the caller orders with this deadline.
  // Nothing: the sample continues with its match.
  std::optional<absl::Duration> Decide(Name sample, const CachedPrefix& cached, SteadyTime now);
  // The answer to that order.
  void Ordered(Name sample, const absl::StatusOr<OperationResult>& result, SteadyTime now);

  // --- While it waits ---

  bool IsFetching(Name sample) const;
  bool any_fetching() const;
  // A batch reported that everything in Lane::kFetch up to this ticket has ended.
  void Heed(Ticket completed, SteadyTime now);
  Ticket completed() const { return completed_; }
  // The sample no longer waits. Returns the tokens that fetches have brought for it.
  uint32_t Leave(Name sample);

  // --- All samples ---

  // The model took `time` for a step of `tokens`, most of them from prompts.
  void Computed(uint64_t tokens, absl::Duration time) { forecast_.Computed(tokens, time); }
  const Counts& counts() const { return counts_; }

 private:
  enum class State : uint8_t {
    kOrdering,  // The order is in a batch that has not run.
    kFetching,
    kEnded,  // Ended or out of time. The next probe measures how much it brought.
    kIdle,   // Another fetch may follow.
    kDone,   // No further fetch.
  };
  struct Fetch {
    // The tokens that it was ordered to bring.
    uint32_t wanted_tokens() const {
      return before.disk_tokens > 0 ? before.disk_tokens
                                    : before.cached_tokens - before.matched_tokens;
    }

    State state = State::kIdle;
    bool orders_blocks = false;   // False: it only waits for the fetches of others.
    bool out_of_time = false;     // It ended late, or the sample stopped waiting.
    CachedPrefix before;          // At the order.
    uint32_t fetched_tokens = 0;  // By the measured fetches.
    Ticket ticket;
    SteadyTime ordered_at;
    SteadyTime ended_at;
    SteadyTime until;
  };

  bool has_disk_ = false;
  uint32_t tokens_per_block_ = 0;
  FetchForecast forecast_;
  std::map<Name, Fetch> fetches_;
  Ticket completed_;
  SteadyTime completed_at_;  // When completed_ last increased.
  Counts counts_;
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_SCHEDULE_PREFIX_FETCHES_H_
