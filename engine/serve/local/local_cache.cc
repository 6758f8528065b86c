#include "engine/serve/local/local_cache.h"

#include <unistd.h>

#include <atomic>
#include <utility>
#include <vector>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "manager/block_manager.h"
#include "manager/words/tier_spec.h"
#include "pools/gpu_transfers/transfers.h"

namespace pagoda {
namespace {

// A name that no other cache of this machine has.
std::string InstanceName() {
  static std::atomic<uint32_t> count = 0;
  return absl::StrCat("local-", getpid(), "-", ++count);
}

}  // namespace

LocalCache::LocalCache(std::unique_ptr<PoolSet> pools, std::unique_ptr<BlockManager> core)
    : pools_(std::move(pools)),
      log_(EventLog::Limits{.max_events = 1 << 10}),
      manager_(std::move(core), &log_) {}

LocalCache::~LocalCache() {
  if (transfers_ != nullptr) transfers_->Stop();
  manager_.SetCarrier({Lane::kMemory}, nullptr);
}

absl::StatusOr<std::unique_ptr<LocalCache>> LocalCache::Create(const Options& options) {
  const absl::StatusOr<CacheLayout> layout = CacheLayout::Create(options.spec);
  if (!layout.ok()) return layout.status();
  const std::vector<uint32_t> blocks(layout->windows().size(), options.blocks);
  absl::StatusOr<std::unique_ptr<PoolSet>> pools =
      PoolSet::Create(*layout, {.tiers = {blocks}}, InstanceName(),
                      PoolPlacement{.primary_device = options.device,
                                    .pages = {.reservation = Reservation::kSparse}});
  if (!pools.ok()) return pools.status();
  const Medium medium = options.device.has_value() ? Medium::kGpu : Medium::kHost;
  absl::StatusOr<std::unique_ptr<BlockManager>> core = BlockManager::Create(
      {.layout = *layout,
       .tiers = {{.name = DefaultTierName(kPrimaryTier), .medium = medium, .blocks = blocks}},
       .pool_mappings = (*pools)->Mappings(),
       .epoch = Epoch(1)});
  if (!core.ok()) return core.status();
  auto cache = absl::WrapUnique(new LocalCache(*std::move(pools), *std::move(core)));
  const auto done = [manager = &cache->manager_](Lane lane, Ticket ticket,
                                                 const absl::Status& status) {
    manager->Complete(lane, ticket, status);
  };
  if (options.device.has_value()) {
    absl::StatusOr<std::unique_ptr<Transfers>> transfers =
        cuda::MakeTransfers(cache->pools_.get(), cuda::TransferOptions(), done);
    if (!transfers.ok()) return transfers.status();
    cache->transfers_ = *std::move(transfers);
  } else {
    auto transfers =
        std::make_unique<HostTransfers>(cache->pools_.get(), HostTransfers::Options{}, done);
    if (!transfers->started().ok()) return transfers->started();
    cache->transfers_ = std::move(transfers);
  }
  cache->manager_.SetCarrier({Lane::kMemory}, cache->transfers_.get());
  return cache;
}

absl::StatusOr<std::unique_ptr<CacheClient>> LocalCache::OpenClient() {
  return OpenLocalCacheClient(&manager_, "pagoda-engine", pools_.get());
}

}  // namespace pagoda
