// Moves prefixes between a cache and a store outside the machine.
#ifndef PAGODA_MANAGER_EXCHANGE_BLOCK_EXCHANGE_H_
#define PAGODA_MANAGER_EXCHANGE_BLOCK_EXCHANGE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/metric.h"
#include "manager/exchange/fetch_source.h"
#include "manager/exchange/stored_prefix.h"
#include "manager/shared_manager.h"
#include "manager/words/fetch_outcome.h"
#include "pools/pool.h"
#include "pools/store/store.h"

namespace pagoda {

struct FetchedPrefix {
  FetchOutcome outcome = FetchOutcome::kFailed;
  uint32_t cached_tokens = 0;   // When the fetch began to read, or ended without that.
  uint32_t fetched_tokens = 0;  // Added behind these.
};

struct PublishedPrefix {
  uint32_t blocks = 0;   // In the store now: written, or there before.
  uint32_t written = 0;  // Written by this call.
  uint32_t failed = 0;   // Not written: the store did not take them.
  uint32_t skipped = 0;  // Not written: over the budget of bytes.
};

// Counts since the exchange was made.
struct ExchangeStats {
  std::array<uint64_t, kFetchOutcomes> fetches = {};  // By outcome.
  uint64_t joined_fetches = 0;
  uint64_t fetched_blocks = 0;
  uint64_t fetched_bytes = 0;
  uint64_t fetched_tokens = 0;
  uint64_t invalid_blocks = 0;
  uint64_t published_blocks = 0;
  uint64_t published_bytes = 0;
  uint64_t skipped_blocks = 0;
  uint64_t failed_blocks = 0;
  double bytes_per_second = 0;
  size_t waiting = 0;
};

// Without a label.
inline constexpr Metric<ExchangeStats> kExchangeMetrics[] = {
    {KindsOf<ExchangeStats, &ExchangeStats::fetches, FetchOutcomeName>("outcome"),
     "pagoda_fetches_total", "fetches_total",
     "Fetches of a prefix from the store or from another daemon, by outcome. fetched: all blocks "
     "that the source has; cached: the cache had them; missing: the source lacks the next block; "
     "partly, and failed (no block came): a block was invalid, late or could not be read; slower: "
     "not begun, because computing is predicted to be faster; no_room: the cache or the quota is "
     "full; refused: a bad prompt, or too many fetches wait; cancelled: the daemon ended; "
     "no_source: there is no store."},
    {&ExchangeStats::joined_fetches, "pagoda_joined_fetches_total", "joined_fetches_total",
     "Fetches that waited for another one of the same blocks."},
    {&ExchangeStats::fetched_blocks, "pagoda_fetched_blocks_total", "fetched_blocks_total",
     "Blocks that fetches have cached."},
    {&ExchangeStats::fetched_bytes, "pagoda_fetched_bytes_total", "fetched_bytes_total",
     "Bytes of the blocks that fetches have cached."},
    {&ExchangeStats::fetched_tokens, "pagoda_fetched_tokens_total", "fetched_tokens_total",
     "Prompt tokens whose KV fetches have cached."},
    {&ExchangeStats::invalid_blocks, "pagoda_fetched_invalid_blocks_total", "invalid_blocks_total",
     "Values that were read and were not the block. They are never used."},
    {&ExchangeStats::published_blocks, "pagoda_published_blocks_total", "published_blocks_total",
     "Blocks written into the store."},
    {&ExchangeStats::published_bytes, "pagoda_published_bytes_total", "published_bytes_total",
     "Bytes of the blocks written into the store."},
    {&ExchangeStats::skipped_blocks, "pagoda_publish_skipped_blocks_total", "skipped_blocks_total",
     "Blocks that a write left out, because store.publish.bytes_per_second was used up."},
    {&ExchangeStats::failed_blocks, "pagoda_publish_failed_blocks_total", "failed_blocks_total",
     "Blocks that the store did not take."},
    {&ExchangeStats::bytes_per_second, "pagoda_fetch_bytes_per_second", "fetch_bytes_per_second",
     "The measured speed of fetches from the store; 0: no fetch has ended."},
    {&ExchangeStats::waiting, "pagoda_exchange_waiting", "waiting",
     "Fetches and writes that have not ended."},
};
static_assert(EachFieldHasARow(kExchangeMetrics), "a field has no row");

// Fetches prefixes from a store into a cache, and publishes cached prefixes to it. It is a client
// of the cache like any other: a fetch reserves the slots of a sequence (arriving blocks), the
// store writes into them, and the verified blocks are committed. So the core knows nothing of
// stores. Thread-safe.
//
// 1. Each Fetch and each Publish is reported exactly once. A fetch ends by its deadline (plus the
//    time of its operations on the cache).
// 2. Only verified blocks become cached, and only those without a gap before them.
// 3. After the end of a fetch or a publish, it holds no slot of the cache.
// 4. Of several fetches from one source whose first missing block is the same, one asks the source,
//    and the others wait for it.
// 5. A publish changes in the cache only what a hit changes: blocks in a lower tier in memory are
//    onboarded. If blocks leave while it begins, it takes new ones in their place until it ends.
// 6. A value that is not its block is withdrawn from the own store, so that the block can be
//    published again.
class BlockExchange {
 public:
  struct Options {
    // A fetch of n tokens may take `fetch_base` + n / 1000 * `fetch_per_1k_tokens`.
    absl::Duration fetch_base = absl::Milliseconds(200);
    absl::Duration fetch_per_1k_tokens = absl::Milliseconds(100);
    // A fetch that is predicted to take longer than computing its tokens at this rate is not begun.
    // 0: unknown, so each is begun.
    double recompute_tokens_per_second = 0;
    // Before the first fetch has ended, this is the store's predicted rate.
    double assumed_bytes_per_second = 500e6;
    // So often a fetch is begun although it is predicted to be slower: the store can be faster now.
    absl::Duration probe_interval = absl::Seconds(10);

    absl::Duration publish_timeout = absl::Seconds(5);
    absl::Duration time_to_live = absl::Hours(24);
    double publish_bytes_per_second = 0;  // 0: no limit. A second's worth can be written at once.

    // The most fetches and publishes that have not ended. Further ones are refused.
    size_t max_waiting = 1024;
    size_t max_waiting_bytes = 256 << 20;  // The most bytes of their prompts.
  };

  // `store` may be null: then Fetch needs a source, and a publish writes nothing. All must outlive
  // the exchange; it is stopped before the cache is dropped. Errors:
  // INVALID_ARGUMENT (the cache has no model fingerprint, so blocks of different models could mix);
  // UNIMPLEMENTED (the cache has a sliding window, or its first tier is on a device); those of
  // OpenSession.
  static absl::StatusOr<std::unique_ptr<BlockExchange>> Create(SharedManager* manager,
                                                               PoolSet* pools, Store* store,
                                                               Options options);
  // Calls Stop.
  ~BlockExchange();

  using FetchDone = std::function<void(const FetchedPrefix&)>;
  using PublishDone = std::function<void(const PublishedPrefix&)>;

  // Brings the prompt's whole blocks into the cache, as far as the source has them. No source: the
  // own store. `most`: a limit of the caller, beside that of the options. `done` runs on the
  // exchange's thread, or within the call if the exchange is stopped or full. It must not block,
  // and must not call Stop.
  void Fetch(StoredPrompt prompt, absl::Duration most, FetchDone done,
             std::shared_ptr<FetchSource> source = nullptr);
  // Writes the cached whole blocks of the prompt into the store, except those that it has. `done`:
  // as for Fetch.
  void Publish(StoredPrompt prompt, PublishDone done);

  // Ends everything. Waits until the store has given back all slots: by the deadlines, or sooner if
  // the store is stopped first. Later calls are reported within the call. May be called again.
  void Stop();
  ExchangeStats stats() const;

 private:
  class Core;

  explicit BlockExchange(std::unique_ptr<Core> core);

  const std::unique_ptr<Core> core_;  // The thread, and the jobs that it runs.
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_EXCHANGE_BLOCK_EXCHANGE_H_
