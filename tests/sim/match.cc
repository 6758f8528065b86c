#include "tests/sim/match.h"

#include <algorithm>

namespace pagoda::sim {

MatchOracle::MatchOracle(World& world, uint32_t name_space, const std::vector<TokenKey>& keys,
                         uint32_t limit, Reach reach, Windows without_part)
    : world_(world),
      name_space_(name_space),
      keyed_(world.config.keyed(name_space)),
      keys_(keys),
      tokens_per_block_(world.tokens_per_block()),
      limit_(limit) {
  for (uint32_t w = 0; w < world.num_windows(); ++w) {
    const Shadow& shadow = world.shadows[w];
    if (reach == Reach::kMemory && world.config.has_disk_in(w)) in_memory_ |= 1u << w;
    uint32_t node = kNone, begin = 0;
    bool ends_on_disk = false;
    for (; begin + tokens_per_block_ <= limit; begin += tokens_per_block_) {
      const uint32_t child =
          shadow.FindChild(node, name_space, {keys.data() + begin, tokens_per_block_});
      if (child == kNone) break;
      if (IsInMemory(w) && world.IsOnlyOnDisk(w, child)) {
        has_more_on_disk_ = true;
        ends_on_disk = world.full(w);
        if (ends_on_disk) break;
      }
      paths_[w].push_back(child);
      node = child;
    }
    if (!ends_on_disk && !keyed_) FindPartials(w, node, begin, (without_part & (1u << w)) != 0);
  }
}

void MatchOracle::FindPartials(uint32_t w, uint32_t parent, uint32_t begin, bool without_part) {
  const Shadow& shadow = world_.shadows[w];
  std::vector<uint32_t>& partials = partials_[w];
  for (uint32_t child = shadow.first_child(parent, name_space_); child != kNone;
       child = shadow.node(child).next_sibling) {
    const Node& closest = shadow.node(child);
    if (!closest.cached()) continue;
    uint32_t common = 0;
    while (common < closest.count && begin + common < limit_ &&
           closest.keys[common] == keys_[begin + common]) {
      ++common;
    }
    if (common == 0 || common < partial_tokens_[w]) continue;
    if (common > partial_tokens_[w]) partials.clear();
    partial_tokens_[w] = common;
    partials.push_back(child);
  }
  if (!IsInMemory(w)) return;
  const auto is_on_disk = [&](uint32_t id) { return world_.IsOnlyOnDisk(w, id); };
  const auto on_disk = std::count_if(partials.begin(), partials.end(), is_on_disk);
  if (on_disk == 0) return;
  // A tail without further tokens comes before the others.
  const auto tail = std::find_if(partials.begin(), partials.end(), [&](uint32_t id) {
    return shadow.node(id).count == partial_tokens_[w];
  });
  bool is_left = on_disk == static_cast<ptrdiff_t>(partials.size());
  if (tail != partials.end()) {
    is_left = is_on_disk(*tail);
  } else if (!is_left) {
    may_lack_part_ |= 1u << w;
    is_left = without_part;
  }
  if (is_left) {
    has_more_on_disk_ = true;
    partials.clear();
    partial_tokens_[w] = 0;
  } else {
    std::erase_if(partials, is_on_disk);
  }
}

std::vector<MatchOracle> MatchOracle::InMemory(World& world, uint32_t name_space,
                                               const std::vector<TokenKey>& keys, uint32_t limit) {
  std::vector<MatchOracle> all;
  all.emplace_back(world, name_space, keys, limit, Reach::kMemory);
  const Windows may_lack = all.front().may_lack_part_;
  for (Windows without = may_lack; without != 0; without = (without - 1) & may_lack) {
    all.emplace_back(world, name_space, keys, limit, Reach::kMemory, without);
  }
  return all;
}

uint32_t MatchOracle::first(uint32_t window, uint32_t length) const {
  if (world_.full(window)) return 0;
  const uint64_t reach = world_.window_size(window) - 1;
  uint32_t first = static_cast<uint32_t>(length > reach ? length - reach : 0) / tokens_per_block_;
  const uint32_t whole = length / tokens_per_block_;
  if (whole > 0) first = std::min(first, whole - 1);
  return first;
}

bool MatchOracle::EndsInHole(uint32_t window, uint32_t length) const {
  const uint32_t index = length / tokens_per_block_;
  return length % tokens_per_block_ != 0 && index < paths_[window].size() &&
         !IsThere(window, paths_[window][index]);
}

std::vector<uint32_t> MatchOracle::BesideHole(uint32_t window, uint32_t length) const {
  const Shadow& shadow = world_.shadows[window];
  const uint32_t begin = length / tokens_per_block_ * tokens_per_block_;
  const uint32_t part = length - begin;
  const uint32_t parent = begin == 0 ? kNone : paths_[window][begin / tokens_per_block_ - 1];
  std::vector<uint32_t> beside;
  for (uint32_t child = shadow.first_child(parent, name_space_); child != kNone;
       child = shadow.node(child).next_sibling) {
    const Node& node = shadow.node(child);
    if (node.cached() && node.count >= part &&
        std::equal(node.keys.begin(), node.keys.begin() + part, keys_.begin() + begin)) {
      beside.push_back(child);
    }
  }
  return beside;
}

bool MatchOracle::Valid(uint32_t window, uint32_t length, uint32_t end) const {
  const std::vector<uint32_t>& path = paths_[window];
  if (length > path.size() * tokens_per_block_ + partial_tokens_[window]) return false;
  for (uint32_t i = first(window, length); i * tokens_per_block_ < end; ++i) {
    if (i >= path.size() || IsThere(window, path[i])) continue;
    // At a hole, a block next to it can give the last tokens, except in windows with a disk.
    const bool ends_here = i == length / tokens_per_block_;
    if (!ends_here || IsInMemory(window) || BesideHole(window, length).empty()) return false;
  }
  return true;
}

uint32_t MatchOracle::Longest(uint32_t most) const {
  for (uint32_t length = std::min(most, limit_); length > 0; --length) {
    bool valid = !keyed_ || length % tokens_per_block_ == 0;
    for (uint32_t w = 0; w < world_.num_windows() && valid; ++w) valid = Valid(w, length, length);
    if (valid) return length;
  }
  return 0;
}

uint32_t MatchOracle::Tail(uint32_t window, uint32_t length) const {
  const uint32_t index = length / tokens_per_block_, part = length % tokens_per_block_;
  if (part == 0 || index > paths_[window].size()) return kNone;
  const uint32_t parent = index == 0 ? kNone : paths_[window][index - 1];
  const uint32_t tail = world_.shadows[window].FindChild(
      parent, name_space_, {keys_.data() + index * tokens_per_block_, part});
  return tail != kNone && world_.shadows[window].node(tail).cached() ? tail : kNone;
}

uint32_t MatchOracle::LongestWhole() const {
  for (uint32_t limit = limit_;;) {
    const uint32_t longest = Longest(limit);
    const uint32_t end = longest / tokens_per_block_ * tokens_per_block_;
    for (uint32_t length = longest; length > end; --length) {
      bool whole = true;
      for (uint32_t w = 0; w < world_.num_windows() && whole; ++w) {
        whole = Valid(w, length, end) && Tail(w, length) != kNone;
      }
      if (whole) return length;
    }
    if (longest == end) return longest;
    limit = end;
  }
}

std::vector<uint32_t> MatchOracle::Sources(uint32_t window, uint32_t length) const {
  if (length % tokens_per_block_ == 0) return {};
  const uint32_t index = length / tokens_per_block_;
  if (EndsInHole(window, length)) {
    const uint32_t tail = Tail(window, length);
    return tail != kNone ? std::vector<uint32_t>{tail} : BesideHole(window, length);
  }
  if (index < paths_[window].size()) return {paths_[window][index]};
  // Among the blocks that share most, a tail without further tokens is preferred.
  const uint32_t tail = Tail(window, index * tokens_per_block_ + partial_tokens_[window]);
  if (tail != kNone) return {tail};
  return partials_[window];
}

MatchOracle::Demand MatchOracle::DemandFor(uint32_t window, uint32_t length, uint64_t reserved,
                                           TenantId tenant) const {
  const Shadow& shadow = world_.shadows[window];
  Ledger& ledger = world_.ledgers[window];
  const uint32_t whole = length / tokens_per_block_;
  uint64_t needed = world_.BlocksFor(reserved) - whole;
  uint64_t available = ledger.available();
  // Matched blocks that the tenant does not hold yet count against its quota, whoever owns them.
  const Accountant& accountant = world_.accountants[window];
  uint64_t charged = needed;
  for (uint32_t i = first(window, length); i < whole; ++i) {
    const uint32_t id = paths_[window][i];
    // Its own held blocks in a lower tier are charged to that tier. Blocks of the default tenant
    // are charged to the primary tier.
    const bool below = shadow.node(id).tier != kPrimaryTier;
    const bool own = world_.config.OwnerOf(shadow.node(id).name_space) == tenant;
    if ((below && own) || !accountant.Holds(id, tenant)) ++charged;
    if (below) {
      ++needed;
    } else if (ledger[id].refs == 0) {
      --available;
    }
  }
  const std::vector<uint32_t> sources = Sources(window, length);
  const uint64_t quota = world_.config.quota(tenant, kPrimaryTier);
  const uint64_t left = accountant.Left(tenant);
  const bool enough = needed <= available && charged <= left;
  Demand result{.fits = enough, .sure = true};
  // A source can be the tenant's own block, and must stay while it is copied.
  if (!sources.empty() && quota != kNoQuota && charged + 1 >= left && charged <= left) {
    return {.fits = enough, .sure = false};
  }
  size_t fitting = 0;
  for (const uint32_t id : sources) {
    const Node& node = shadow.node(id);
    const bool evictable = node.tier == kPrimaryTier && ledger[id].refs == 0;
    const bool can_take =
        evictable && !shadow.HasChildren(id) && !world_.memory.Touched(window, ledger[id].place);
    // A source that is taken over needs no fresh block, but is not available. A source that is
    // copied must stay.
    const bool fits =
        charged <= left && ((can_take && enough) || needed + (evictable ? 1 : 0) <= available);
    fitting += fits ? 1 : 0;
  }
  if (sources.empty()) return result;
  result.fits = fitting > 0;
  result.sure = fitting == 0 || fitting == sources.size();
  return result;
}

MatchOracle MatchAll(World& world, const Content& content) {
  return MatchOracle(world, content.name_space, KeysOf(content),
                     static_cast<uint32_t>(content.tokens.size()));
}

}  // namespace pagoda::sim
