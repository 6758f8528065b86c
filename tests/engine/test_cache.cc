#include "tests/engine/test_cache.h"

#include <unistd.h>

#include <string>
#include <utility>

#include "tests/base/require.h"
#include "tests/manager/held_blocks.h"
#include "tests/manager/host_tiers.h"

namespace pagoda {
namespace {

// Shared memory names that no other test and no other cache of this test uses.
std::string FreshInstance() {
  static int count = 0;
  return "engine-test-" + std::to_string(getpid()) + "-" + std::to_string(++count);
}

}  // namespace

TestCache::TestCache(CacheSpec spec, Sizes sizes,
                     std::function<absl::Status(const CopyOrder&)> before_copy,
                     std::vector<TenantOptions> tenants) {
  const CacheLayout layout = Require(CacheLayout::Create(std::move(spec)));
  const size_t windows = layout.windows().size();
  const std::vector<uint32_t> primary(windows, sizes.primary_blocks);
  const std::vector<uint32_t> secondary(windows, sizes.secondary_blocks);
  const uint32_t staging = sizes.disk_blocks == 0 ? 0 : kStagingSlots;
  const std::vector<uint32_t> secondary_slots(
      windows, SlotsFor(Tier::kSecondary, sizes.secondary_blocks) + staging);
  std::vector<TierSpec> tiers = HostTiers(primary, secondary);
  if (sizes.disk_blocks != 0) {
    tiers.push_back({.name = "disk",
                     .medium = Medium::kDisk,
                     .blocks = std::vector<uint32_t>(windows, sizes.disk_blocks)});
  }
  pools_ = Require(PoolSet::Create(layout, {.tiers = {primary, secondary_slots}}, FreshInstance()));
  PoisonPrimary();
  manager_ = std::make_unique<SharedManager>(
      Require(BlockManager::Create({.layout = layout,
                                    .tiers = std::move(tiers),
                                    .pool_mappings = pools_->Mappings(),
                                    .epoch = Epoch(1),
                                    .tenants = std::move(tenants)})),
      &log_);
  transfers_ = std::make_unique<HostTransfers>(
      pools_.get(), HostTransfers::Options{.before_copy = std::move(before_copy)},
      [this](Ticket ticket, const absl::Status& status) {
        manager_->CompleteCopy(ticket, status);
      });
  manager_->SetTransfers(transfers_.get());
}

TestCache::~TestCache() {
  transfers_->Stop();
  manager_->SetTransfers(nullptr);
}

void TestCache::PoisonPrimary() {
  const auto& windows = pools_->layout().windows();
  for (uint32_t window = 0; window < windows.size(); ++window) {
    for (uint32_t pool = 0; pool < windows[window].pools.size(); ++pool) {
      for (std::byte& byte : pools_->pool(window, pool).bytes()) byte = std::byte{0xff};
    }
  }
}

std::unique_ptr<CacheClient> TestCache::OpenClient() {
  return Require(OpenLocalCacheClient(manager_.get(), "engine test"));
}

TierOccupancy TestCache::occupancy() const { return manager_->Stats().windows[0].tiers[0]; }

bool TestCache::NothingHeld() const { return HoldsNothing(*manager_); }

}  // namespace pagoda
