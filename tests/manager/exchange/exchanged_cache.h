// A cache with memory in this process whose bytes follow from its tokens, and an engine of it.
#ifndef PAGODA_TESTS_MANAGER_EXCHANGE_EXCHANGED_CACHE_H_
#define PAGODA_TESTS_MANAGER_EXCHANGE_EXCHANGED_CACHE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "events/event_log.h"
#include "manager/exchange/block_exchange.h"
#include "manager/shared_manager.h"
#include "pools/pool.h"
#include "pools/transfers.h"

namespace pagoda {

inline constexpr uint32_t kBlockTokens = 4;

using Tokens = std::vector<TokenId>;

// `count` tokens that a seed gives: a longer prompt of the same seed begins with a shorter one.
Tokens TokensOf(uint32_t seed, uint32_t count);

class ExchangedCache {
 public:
  struct Options {
    uint32_t blocks = 64;
    uint32_t lower_blocks = 0;
    std::string name = "cache";
    std::string model = "org/model";
    std::vector<WindowSize> windows = {kFullAttention};  // The windows of its layers.
    std::vector<TenantOptions> tenants = {};
    std::optional<uint8_t> publish_min_uses = std::nullopt;
    absl::Duration copy_delay = absl::ZeroDuration();  // Before each copy between its tiers.
    const std::atomic<bool>* copies_fail = nullptr;    // Outlives the cache.
  };
  ExchangedCache() : ExchangedCache(Options()) {}
  explicit ExchangedCache(const Options& options);
  ~ExchangedCache();

  SharedManager& manager() { return *manager_; }
  PoolSet& pools() { return *pools_; }

  // An engine computes the prompt: it writes the KV of each token and commits it. Returns how many
  // tokens it found cached. Stops the process if cached KV is wrong, or if the blocks are
  // exhausted.
  uint32_t Compute(const Tokens& tokens, const NamespaceKey& name_space = {});
  // Computes the prompt like Compute, but returns false if too few blocks are available.
  bool TryCompute(const Tokens& tokens);
  // Tokens that a sequence would match.
  uint32_t Matched(const Tokens& tokens, const NamespaceKey& name_space = {});
  // Holds so many blocks until Drop.
  void Take(uint32_t blocks);
  void Drop();
  void WaitForCopies() { transfers_->WaitUntilIdle(); }
  // Whether nothing holds a block. Stops the process if the core is not sound.
  bool NothingHeld() const;

 private:
  void CheckBlock(const BlockHandle& block, const Tokens& tokens, uint32_t index);
  void WriteBlock(const BlockHandle& block, const Tokens& tokens, uint32_t index);

  std::unique_ptr<PoolSet> pools_;
  EventLog log_{EventLog::Limits{.max_events = 1 << 14}};
  std::unique_ptr<SharedManager> manager_;
  std::unique_ptr<HostTransfers> transfers_;
  std::unique_ptr<CacheClient> client_;
  uint64_t last_sequence_ = 0;
};

}  // namespace pagoda

#endif  // PAGODA_TESTS_MANAGER_EXCHANGE_EXCHANGED_CACHE_H_
