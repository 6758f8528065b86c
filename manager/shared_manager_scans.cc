// The part of SharedManager that scans a whole cache, in chunks between which it releases the lock.
#include <algorithm>
#include <optional>
#include <utility>

#include "manager/cache_lists.h"
#include "manager/shared_manager.h"

namespace pagoda {
// The memory of a copy is taken and touched before the lock is taken.

std::vector<SlotState> SharedManager::SlotStates(uint32_t window_index, Tier tier) const {
  const CacheInfo::Window& window = info_.windows[window_index];
  std::vector<SlotState> states(SlotsFor(tier, window.blocks_in(tier)));
  const auto slots = static_cast<uint32_t>(states.size());
  FairMutexLock lock(&mutex_);
  for (uint32_t from = 0; from < slots; from += kScanPiece) {
    if (mutex_.wanted()) mutex_.LetOthersIn();
    core_->lists().SlotStates(
        window_index, tier, from,
        absl::MakeSpan(states).subspan(from, std::min(kScanPiece, slots - from)));
  }
  return states;
}

std::vector<PrefixUse> SharedManager::TopPrefixes(size_t limit) const {
  std::vector<PrefixNode> nodes(num_prefix_nodes_);
  {
    const auto ids = static_cast<uint32_t>(nodes.size());
    FairMutexLock lock(&mutex_);
    for (uint32_t from = 0; from < ids; from += kScanPiece) {
      if (mutex_.wanted()) mutex_.LetOthersIn();
      core_->lists().PrefixNodes(
          from, absl::MakeSpan(nodes).subspan(from, std::min(kScanPiece, ids - from)));
    }
  }
  const std::vector<UsedPrefix> top = pagoda::TopPrefixes(nodes, limit);
  std::vector<PrefixUse> uses;
  uses.reserve(top.size());
  FairMutexLock lock(&mutex_);
  for (const UsedPrefix& prefix : top) {
    if (mutex_.wanted()) mutex_.LetOthersIn();
    // The prefix may have left the cache meanwhile.
    if (std::optional<PrefixUse> use = core_->lists().DescribePrefix(prefix)) {
      uses.push_back(*std::move(use));
    }
  }
  return uses;
}

std::vector<PublishablePrefix> SharedManager::TakePublishable(uint32_t max_prefixes) {
  std::vector<PublishablePrefix> prefixes;
  FairMutexLock lock(&mutex_);
  // Others can queue further blocks meanwhile, so the number of chunks is limited.
  uint32_t left = core_->lists().publishable().queued / kPublishPiece + 1 + max_prefixes;
  for (; left > 0 && prefixes.size() < max_prefixes && core_->lists().publishable().queued > 0;
       --left) {
    if (mutex_.wanted()) mutex_.LetOthersIn();
    core_->lists().TakePublishable(1, kPublishPiece, &prefixes);
  }
  return prefixes;
}

}  // namespace pagoda
