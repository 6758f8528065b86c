#include "tests/engine/test_cache.h"

#include <unistd.h>

#include <string>
#include <utility>

#include "pools/check.h"

namespace pagoda {
namespace {

// Shared memory names that neither another test nor another cache of this one uses.
std::string FreshInstance() {
  static int count = 0;
  return "engine-test-" + std::to_string(getpid()) + "-" + std::to_string(++count);
}

template <class T>
T Require(absl::StatusOr<T> value) {
  PAGODA_CHECK(value.ok(), value.status().ToString().c_str());
  return *std::move(value);
}

}  // namespace

TestCache::TestCache(CacheSpec spec, uint32_t num_blocks) {
  const CacheLayout layout = Require(CacheLayout::Create(std::move(spec)));
  pools_ = Require(PoolSet::Create(layout, {num_blocks}, FreshInstance()));
  // A slot's bytes are NaN until somebody writes them.
  for (std::byte& byte : pools_->pool(0, 0).bytes()) byte = std::byte{0xff};
  manager_ = std::make_unique<SharedManager>(
      Require(BlockManager::Create({.layout = layout,
                                    .primary_blocks = {num_blocks},
                                    .pool_mappings = pools_->Mappings(),
                                    .epoch = Epoch(1)})),
      &log_);
}

std::unique_ptr<CacheClient> TestCache::OpenClient() {
  return Require(OpenLocalCacheClient(manager_.get(), "engine test"));
}

TierOccupancy TestCache::occupancy() const { return manager_->Stats().windows[0].tiers[0]; }

}  // namespace pagoda
