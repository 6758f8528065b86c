#include "clients/router/prefix_router.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/error.h"
#include "manager/shared_manager.h"

namespace pagoda {
namespace {

// Records that change under one hold of the lock.
constexpr size_t kChangesAtOnce = 64;
constexpr absl::Duration kShortestLease = absl::Milliseconds(10);
constexpr absl::Duration kLongestPace = absl::Milliseconds(20);

bool IsPositive(double value) { return std::isfinite(value) && value > 0; }

absl::Status Check(const PrefixRouter::Options& options) {
  const RouteCosts& costs = options.costs;
  if (options.lease < kShortestLease) {
    return InvalidArgument(
        absl::StrCat("a lease of ", absl::FormatDuration(options.lease), " is below 10 ms"));
  }
  if (options.max_snapshots < 1) return InvalidArgument("no node may send a snapshot");
  if (options.first_pause <= absl::ZeroDuration() || options.longest_pause < options.first_pause) {
    return InvalidArgument("the pauses between calls are not positive and ascending");
  }
  const bool are_positive =
      IsPositive(costs.recompute_tokens_per_second) && IsPositive(costs.gpu_bytes_per_second) &&
      IsPositive(costs.host_bytes_per_second) && IsPositive(costs.disk_bytes_per_second);
  const bool are_valid = std::isfinite(costs.peer_bytes_per_second) &&
                         costs.peer_bytes_per_second >= 0 && std::isfinite(costs.bytes_per_token) &&
                         costs.bytes_per_token >= 0;
  if (!are_positive || !are_valid) {
    return InvalidArgument("a rate of the costs is not a positive number");
  }
  return absl::OkStatus();
}

double BytesPerSecond(const RouteCosts& costs, Medium medium) {
  switch (medium) {
    case Medium::kGpu:
      return costs.gpu_bytes_per_second;
    case Medium::kHost:
      return costs.host_bytes_per_second;
    case Medium::kDisk:
      break;
  }
  return costs.disk_bytes_per_second;
}

}  // namespace

absl::StatusOr<std::unique_ptr<PrefixRouter>> PrefixRouter::Create(const Options& options) {
  if (absl::Status valid = Check(options); !valid.ok()) return valid;
  std::unique_ptr<PrefixRouter> router(new PrefixRouter(options));
  absl::Status started = router->thread_.Start("pagoda-router", [r = router.get()] { r->Run(); });
  if (!started.ok()) return started;
  return router;
}

PrefixRouter::PrefixRouter(const Options& options)
    : options_(options), slots_(options.max_snapshots) {}

PrefixRouter::~PrefixRouter() {
  stop_.Notify();
  thread_.Join();
  absl::MutexLock lock(&nodes_mutex_);
  for (const auto& [name, watch] : nodes_) watch->Stop();
}

void PrefixRouter::Run() {
  const absl::Duration pace = std::min(options_.lease / 20, kLongestPace);
  std::vector<std::shared_ptr<NodeWatch>> nodes;
  while (!stop_.WaitForNotificationWithTimeout(pace)) {
    nodes.clear();
    {
      absl::MutexLock lock(&nodes_mutex_);
      for (const auto& [name, watch] : nodes_) nodes.push_back(watch);
    }
    for (const std::shared_ptr<NodeWatch>& watch : nodes) watch->Tick(SharedManager::Now());
    absl::MutexLock lock(&index_mutex_);
    index_.Sweep();
  }
}

absl::Status PrefixRouter::AddNode(RouterNode node) {
  if (node.name.empty() || node.endpoint.empty()) {
    return InvalidArgument("a node has no name or no endpoint");
  }
  absl::MutexLock lock(&nodes_mutex_);
  if (nodes_.contains(node.name)) {
    return InvalidArgument(absl::StrCat("there is a node '", node.name, "' already"));
  }
  const bool reuses = !free_ids_.empty();
  if (!reuses && used_ids_ == PrefixIndex::kMaxNodes) {
    return InvalidArgument(absl::StrCat("there are ", nodes_.size(), " nodes already"));
  }
  const NodeId id = reuses ? free_ids_.back() : NodeId(static_cast<uint16_t>(used_ids_));
  const auto shared = std::make_shared<const RouterNode>(std::move(node));
  absl::StatusOr<std::unique_ptr<NodeWatch>> watch =
      NodeWatch::Create(shared, id,
                        {.cache = options_.cache,
                         .chunk_tokens = options_.chunk_tokens,
                         .lease = options_.lease,
                         .first_pause = options_.first_pause,
                         .longest_pause = options_.longest_pause},
                        this, &slots_);
  if (!watch.ok()) return watch.status();
  if (reuses) {
    free_ids_.pop_back();
  } else {
    ++used_ids_;
  }
  {
    absl::MutexLock index_lock(&index_mutex_);
    if (facts_.size() <= id.value()) facts_.resize(id.value() + size_t{1});
    facts_[id.value()] = {.node = shared};
    index_.Show(id);
  }
  nodes_.emplace(shared->name, *std::move(watch));
  return absl::OkStatus();
}

absl::Status PrefixRouter::RemoveNode(std::string_view name) {
  std::shared_ptr<NodeWatch> watch;
  {
    absl::MutexLock lock(&nodes_mutex_);
    const auto found = nodes_.find(name);
    if (found == nodes_.end()) {
      return absl::NotFoundError(absl::StrCat("there is no node '", std::string(name), "'"));
    }
    watch = std::move(found->second);
    nodes_.erase(found);
  }
  watch->Stop();
  {
    absl::MutexLock lock(&index_mutex_);
    index_.Forget(watch->id());
    NodeFacts& facts = facts_[watch->id().value()];
    if (facts.accepted && --accepted_ == 0) cache_.reset();
    facts = {};
  }
  absl::MutexLock lock(&nodes_mutex_);
  free_ids_.push_back(watch->id());
  return absl::OkStatus();
}

absl::Status PrefixRouter::Accept(NodeId node, const ServedCache& cache) {
  absl::MutexLock lock(&index_mutex_);
  NodeFacts& facts = facts_[node.value()];
  if (std::exchange(facts.accepted, false) && --accepted_ == 0) cache_.reset();
  if (cache_.has_value()) {
    if (absl::Status same = CheckSameContent(*cache_, cache); !same.ok()) return same;
  } else {
    cache_ = cache;
  }
  ++accepted_;
  facts.accepted = true;
  facts.bytes_per_token =
      options_.costs.bytes_per_token > 0 ? options_.costs.bytes_per_token : cache.bytes_per_token;
  for (size_t tier = 1; tier < kMaxTiers; ++tier) {
    const Medium medium = tier < cache.tiers.size() ? cache.tiers[tier].medium : Medium::kDisk;
    facts.onboard_seconds[tier] = facts.bytes_per_token / BytesPerSecond(options_.costs, medium);
  }
  return absl::OkStatus();
}

void PrefixRouter::Apply(NodeId node, absl::Span<const NodeWatch::Change> changes) {
  for (size_t begin = 0; begin < changes.size(); begin += kChangesAtOnce) {
    absl::MutexLock lock(&index_mutex_);
    for (const NodeWatch::Change& change : changes.subspan(begin, kChangesAtOnce)) {
      if (change.kind == NodeWatch::Change::Kind::kAdd) {
        index_.Add(node, change.chunk, change.tier);
      } else {
        index_.Remove(node, change.chunk);
      }
    }
  }
}

void PrefixRouter::Forget(NodeId node) {
  absl::MutexLock lock(&index_mutex_);
  index_.Forget(node);
}

void PrefixRouter::Hide(NodeId node) {
  absl::MutexLock lock(&index_mutex_);
  index_.Hide(node);
}

void PrefixRouter::Show(NodeId node) {
  absl::MutexLock lock(&index_mutex_);
  index_.Show(node);
}

// A block is never in a nearer tier than its parent. So the chunks of one tier are neighbours, and
// their first one is found by bisection.
// The result is for chunks of one token.
double PrefixRouter::OnboardSeconds(const PrefixIndex::Match& match,
                                    absl::Span<const BlockHash> chunks) const {
  double seconds = 0;
  Tier tier = match.tier;
  size_t end = match.chunks;
  while (end > 0 && tier != kPrimaryTier) {
    const auto tier_at = [&](const BlockHash& chunk) {
      return index_.TierOf(match.node, chunk).value_or(kPrimaryTier);
    };
    const auto first =
        std::partition_point(chunks.begin(), chunks.begin() + static_cast<ptrdiff_t>(end),
                             [&](const BlockHash& chunk) { return tier_at(chunk) < tier; });
    const size_t begin = static_cast<size_t>(first - chunks.begin());
    seconds +=
        static_cast<double>(end - begin) * facts_[match.node.value()].onboard_seconds[tier.value()];
    if (begin == end || begin == 0) break;
    end = begin;
    tier = tier_at(chunks[end - 1]);
  }
  return seconds;
}

void PrefixRouter::Estimate(const std::vector<Candidate>& nodes, size_t prompt_tokens,
                            double bytes_per_token, double onboard_seconds,
                            Candidate* candidate) const {
  const double compute_rate = options_.costs.recompute_tokens_per_second;
  const double peer_rate = options_.costs.peer_bytes_per_second;
  double left = static_cast<double>(prompt_tokens - candidate->tokens);
  double seconds = onboard_seconds;
  const auto peer = std::find_if(nodes.begin(), nodes.end(), [&](const Candidate& other) {
    return other.node != candidate->node && !other.node->peer_address.empty();
  });
  if (peer != nodes.end() && peer->tokens > candidate->tokens && peer_rate > 0) {
    const uint32_t tokens = peer->tokens - candidate->tokens;
    const double fetch = tokens * bytes_per_token / peer_rate;
    if (fetch < tokens / compute_rate) {
      seconds += fetch;
      left -= tokens;
      candidate->fetch_tokens = tokens;
      candidate->fetch_from = peer->node;
    }
  }
  candidate->cost = absl::Seconds(seconds + left / compute_rate);
}

PrefixRouter::Route PrefixRouter::Find(const RoutedPrompt& prompt, size_t most) const {
  Route route;
  const std::optional<ServedCache> known = cache();
  if (!known.has_value()) return route;
  const TokensPerBlock tokens_per_block(known->tokens_per_block);
  const uint32_t chunk_tokens = ChunkTokens(*known);
  const std::vector<BlockHash> chunks = ChunkHashes(prompt, tokens_per_block, chunk_tokens);
  const size_t size = prompt.size(tokens_per_block);
  const size_t reusable = prompt.reusable(tokens_per_block);

  std::vector<double> bytes, onboard;
  {
    absl::ReaderMutexLock lock(&index_mutex_);
    for (const PrefixIndex::Match& match : index_.Find(chunks, most)) {
      const NodeFacts& facts = facts_[match.node.value()];
      const size_t tokens = std::min(size_t{match.chunks} * chunk_tokens, reusable);
      route.nodes.push_back({.node = facts.node,
                             .tokens = static_cast<uint32_t>(tokens),
                             .tier = match.tier,
                             .cost = {},
                             .fetch_tokens = 0,
                             .fetch_from = nullptr});
      bytes.push_back(facts.bytes_per_token);
      onboard.push_back(chunk_tokens * OnboardSeconds(match, chunks));
    }
  }
  for (size_t i = 0; i < route.nodes.size(); ++i) {
    Estimate(route.nodes, size, bytes[i], onboard[i], &route.nodes[i]);
  }
  const double bytes_per_token =
      options_.costs.bytes_per_token > 0 ? options_.costs.bytes_per_token : known->bytes_per_token;
  Estimate(route.nodes, size, bytes_per_token, 0, &route.other);
  return route;
}

std::vector<PrefixRouter::NodeRow> PrefixRouter::Nodes() const {
  const absl::Time now = SharedManager::Now();
  std::vector<NodeRow> rows;
  absl::MutexLock lock(&nodes_mutex_);
  for (const auto& [name, watch] : nodes_) {
    NodeRow row = {.node = watch->node(), .figures = watch->Look(now)};
    absl::ReaderMutexLock index_lock(&index_mutex_);
    row.records = index_.size(watch->id());
    rows.push_back(std::move(row));
  }
  return rows;
}

void PrefixRouter::AwaitNodes(absl::Duration timeout) const {
  const absl::Time deadline = SharedManager::Now() + timeout;
  const auto is_settled = [](const NodeRow& row) {
    const NodeState state = row.figures.state;
    return state == NodeState::kFollowing || state == NodeState::kDead ||
           state == NodeState::kRefused ||
           (state == NodeState::kConnecting && !row.figures.error.ok());
  };
  while (SharedManager::Now() < deadline) {
    const std::vector<NodeRow> rows = Nodes();
    if (std::all_of(rows.begin(), rows.end(), is_settled)) return;
    absl::SleepFor(absl::Milliseconds(1));
  }
}

std::optional<ServedCache> PrefixRouter::cache() const {
  absl::ReaderMutexLock lock(&index_mutex_);
  return cache_;
}

std::optional<Tier> PrefixRouter::TierOf(std::string_view name, BlockHash chunk) const {
  absl::MutexLock lock(&nodes_mutex_);
  const auto found = nodes_.find(name);
  if (found == nodes_.end()) return std::nullopt;
  absl::ReaderMutexLock index_lock(&index_mutex_);
  return index_.TierOf(found->second->id(), chunk);
}

uint64_t PrefixRouter::memory_bytes() const {
  absl::ReaderMutexLock lock(&index_mutex_);
  return index_.memory_bytes();
}

}  // namespace pagoda
