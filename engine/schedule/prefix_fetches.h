// Requests that wait until what is cached of them on disk is in memory.
#ifndef PAGODA_ENGINE_SCHEDULE_PREFIX_FETCHES_H_
#define PAGODA_ENGINE_SCHEDULE_PREFIX_FETCHES_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "engine/schedule/fetch_forecast.h"
#include "engine/schedule/stopwatch.h"
#include "manager/cache_client.h"
#include "manager/operation.h"

namespace pagoda {

// What a cache has of a prompt.
struct CachedPrefix {
  uint32_t matched_tokens = 0;  // A sequence would match them now.
  uint32_t cached_tokens = 0;   // As in MatchedPrefix.
  uint32_t disk_tokens = 0;     // Of these, those that lie on disk alone.

  static CachedPrefix From(const MatchedPrefix& match) {
    return {.matched_tokens = match.matched_tokens,
            .cached_tokens = match.cached_tokens,
            .disk_tokens = match.tokens_by_tier.empty() ? 0 : match.tokens_by_tier.back()};
  }
  uint32_t memory_tokens() const { return cached_tokens - std::min(disk_tokens, cached_tokens); }
};

// Decides which waiting samples a fetch is ordered for, and how long each waits. The caller asks
// the cache, and gives back what it answers. A sample is named by its request's number and its own.
// Thread-compatible. Reads no clock.
//
// A sample waits for fetches until the first of them was ordered plus the time that computing its
// tokens would take, in all. Until then another fetch may follow one that brought only a part,
// because the cache fetches so much at once and no more. A fetch that is late, or brings nothing,
// is the sample's last.
//
// Invariants
// 1. Only samples that wait to be admitted are known here, and of these only those that had
// something on disk.
// 2. A sample that is fetching stops to do so by Heed, however the fetch ends.
class PrefixFetches {
 public:
  using Name = std::pair<uint64_t, uint32_t>;
  struct Counts {
    uint64_t fetches = 0;            // Ordered.
    uint64_t late_fetches = 0;       // Of these, those that had not brought all in time.
    uint64_t fetches_not_worth = 0;  // Samples that computed what was on disk.
  };

  explicit PrefixFetches(const CacheInfo& cache) { Attach(cache); }
  // Another session: what was ordered before is nobody's. What was learnt of its speed stays.
  void Attach(const CacheInfo& cache);

  // --- A sample that is looked up ---

  // Whether to ask what of it is cached beyond what matches.
  bool WantsMatch(Name sample) const;
  // What is cached of it now. Closes the fetch that it waited for.
  void Probed(Name sample, const CachedPrefix& cached, SteadyTime now);
  // How long the sample shall wait for a fetch, which the caller is to order with this deadline.
  // Nothing: it goes on with what matches.
  std::optional<absl::Duration> Decide(Name sample, const CachedPrefix& cached, SteadyTime now);
  // The answer to that order.
  void Ordered(Name sample, const absl::StatusOr<OperationResult>& result, SteadyTime now);

  // --- While it waits ---

  bool IsFetching(Name sample) const;
  bool any_fetching() const;
  // What a batch told: everything in Lane::kFetch up to this ticket has ended.
  void Heed(Ticket completed, SteadyTime now);
  Ticket completed() const { return completed_; }
  // It does not wait any more. Returns the tokens that fetches have brought for it.
  uint32_t Leave(Name sample);

  // --- All of them ---

  // A step, most of whose tokens were prompts', took the model so long.
  void Computed(uint64_t tokens, absl::Duration time) { forecast_.Computed(tokens, time); }
  const Counts& counts() const { return counts_; }

 private:
  enum class State : uint8_t {
    kOrdering,  // In a batch that has not run.
    kFetching,
    kEnded,  // Or out of time. Not measured yet: the next probe tells what it brought.
    kIdle,   // Another fetch may follow.
    kDone,   // None does.
  };
  struct Fetch {
    // What it was to bring.
    uint32_t wanted_tokens() const {
      return before.disk_tokens > 0 ? before.disk_tokens
                                    : before.cached_tokens - before.matched_tokens;
    }

    State state = State::kIdle;
    bool orders_blocks = false;   // Others' fetches alone are waited for, where it does not.
    bool out_of_time = false;     // When it ended, or was not waited for any more.
    CachedPrefix before;          // When it was ordered.
    uint32_t fetched_tokens = 0;  // By those that have been measured.
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
  SteadyTime completed_at_;  // When it grew.
  Counts counts_;
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_SCHEDULE_PREFIX_FETCHES_H_
