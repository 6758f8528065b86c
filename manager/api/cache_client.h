// The cache as an engine sees it: a session that runs batches of operations. The bundled engine
// knows only this interface. So it runs unchanged inside the daemon (LocalCacheClient) or beside it
// (GrpcCacheClient).
#ifndef PAGODA_MANAGER_API_CACHE_CLIENT_H_
#define PAGODA_MANAGER_API_CACHE_CLIENT_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "manager/api/operation.h"
#include "pools/pool.h"

namespace pagoda {

// The properties of the cache that a client needs before its first operation.
struct CacheInfo {
  std::string name;
  std::string model_fingerprint;
  uint32_t tokens_per_block = 0;
  struct TierInfo {
    std::string name;
    Medium medium = Medium::kHost;
  };
  std::vector<TierInfo> tiers;  // Indexed by Tier, nearest first.
  struct Window {
    WindowSize window;
    std::vector<uint32_t> blocks;  // Indexed by Tier.

    // 0 if the cache has no such tier.
    uint32_t blocks_in(Tier tier) const {
      return tier.value() < blocks.size() ? blocks[tier.value()] : 0;
    }
    // The number of blocks in all tiers.
    uint64_t all_blocks() const {
      return std::accumulate(blocks.begin(), blocks.end(), uint64_t{0});
    }
  };
  std::vector<Window> windows;  // Ascending.

  // DefaultTierName() if the list does not name the tier.
  std::string TierName(Tier tier) const {
    return tier.value() < tiers.size() ? tiers[tier.value()].name : DefaultTierName(tier);
  }
  // Whether any window has blocks below the first tier.
  bool has_lower_tiers() const {
    return std::any_of(windows.begin(), windows.end(), [](const Window& window) {
      return window.all_blocks() > window.blocks_in(kPrimaryTier);
    });
  }
};

// One session. Thread-compatible: one caller at a time. The destructor closes the session and frees
// everything that it owns.
class CacheClient {
 public:
  virtual ~CacheClient() = default;

  virtual const CacheInfo& info() const = 0;

  // Runs the operations in order. Each succeeds or fails by itself. An error of the call means that
  // the batch as a whole did not run, or that its answer was lost: UNKNOWN_SESSION,
  // BATCH_TOO_LARGE, DRAINING, STEP_BACKWARDS (`steps`, rule 11), or an error of the transport.
  virtual absl::StatusOr<BatchResult> Execute(absl::Span<const Operation> operations,
                                              StepRange steps) = 0;
  absl::StatusOr<BatchResult> Execute(absl::Span<const Operation> operations) {
    return Execute(operations, StepRange{});
  }

  // The tenants whose last batch took so long that their next one is to wait while others have
  // work. Called by the thread that calls Execute, which it does not keep waiting.
  virtual std::vector<std::string> SlowTenants() { return {}; }

  // Maps every pool of the cache into this process, in the order of DescribePools. A process maps
  // the pools once for each session whose blocks it touches. A process that maps with kReadWrite
  // counts as a writer of the session. If the session then ends without being closed, its blocks
  // stay quarantined until this process has ended. The mappings outlive the client, but must not be
  // written after it is gone. Errors: UNKNOWN_SESSION, STALE_SESSION, DRAINING; NotFound or
  // FailedPrecondition without a reason if the pools are on another machine; errors of mapping.
  // Cost: system calls; memory is taken only when it is touched.
  virtual absl::StatusOr<std::vector<std::unique_ptr<MappedPool>>> MapPools(
      MemoryAccess access) = 0;
};

// Runs one operation and returns its typed result: `RunOne<AddedSequence>(client,
// AddSequence{...})`.
template <class Result>
absl::StatusOr<Result> RunOne(CacheClient& client, const Operation& operation) {
  absl::StatusOr<BatchResult> batch = client.Execute({&operation, 1});
  if (!batch.ok()) return batch.status();
  absl::StatusOr<OperationResult>& result = batch->results.front();
  if (!result.ok()) return result.status();
  return std::get<Result>(*std::move(result));
}

}  // namespace pagoda

#endif  // PAGODA_MANAGER_API_CACHE_CLIENT_H_
