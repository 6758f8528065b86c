#include "kernels/attention_split.h"

#include <algorithm>
#include <vector>

namespace pagoda::kernels {
namespace {

// Costs, in keys of one worker. They follow from bytes and usual launch times, and are not fitted
// to one GPU.
constexpr uint64_t kPieceCost = 32;   // The start of a piece: its queries and its first tiles.
constexpr uint64_t kRowCost = 2;      // Writing a partial row and reading it again.
constexpr uint64_t kMergeCost = 128;  // The launch of the merge.

// A finer cut must be better by 1 / kLeastGain.
constexpr uint64_t kLeastGain = 32;
// The search ends when the best cut is within 1 / kNearEnough of the bound.
constexpr uint64_t kNearEnough = 16;
// Up to this many parts, every number is tried. Above it, the steps grow with the number.
constexpr uint32_t kTriedParts = 16;
// The maximum of pieces of cut items, in rounds of the workers. More rounds gain nothing.
constexpr uint64_t kMostRounds = 8;

template <class T>
T CeilDivide(T a, T b) {
  return a / b + (a % b != 0 ? 1 : 0);
}

// The keys of an item: those of its window, and the sinks before the window.
struct Item {
  uint32_t first;
  uint32_t end;
  uint32_t sinks;
  uint32_t queries;

  uint32_t keys() const { return end - first + sinks; }
};

struct Estimate {
  uint64_t cost = 0;
  uint64_t cut_pieces = 0;  // Pieces of cut items, in all KV heads.
  uint64_t partials = 0;    // In query tokens.
};

// The items of one launch of kernels.
class Launch {
 public:
  void Add(const Item& item) {
    items_.push_back(item);
    keys_ += item.keys();
    longest_ = std::max(longest_, item.keys());
    end_ = std::max(end_, item.end);
    most_queries_ = std::max(most_queries_, item.queries);
  }
  bool empty() const { return items_.empty(); }
  uint64_t keys() const { return keys_; }
  uint32_t longest() const { return longest_; }
  uint32_t end() const { return end_; }

  // Workers take pieces in rounds, the longest ones first. PlanAttention cuts at multiples of
  // `split`.
  Estimate With(uint32_t split, uint64_t heads, uint64_t workers, uint64_t group) const {
    Estimate estimate;
    if (empty()) return estimate;
    uint64_t full = 0;  // Pieces of exactly `split` keys. The others are shorter.
    uint64_t others = 0;
    uint64_t most_parts = 1;
    for (const Item& item : items_) {
      const uint32_t begin_part = item.first / split;
      const uint32_t sink_parts =
          item.sinks == 0 ? 0 : std::min(begin_part, CeilDivide(item.sinks, split));
      const uint64_t parts = uint64_t{CeilDivide(item.end, split)} - begin_part + sink_parts;
      const uint32_t first_full = begin_part + (begin_part * uint64_t{split} < item.first ? 1 : 0);
      const uint32_t end_full = item.end / split;
      const uint64_t item_full = end_full > first_full ? end_full - first_full : 0;
      full += item_full;
      others += parts - item_full;
      most_parts = std::max(most_parts, parts);
      if (parts == 1) continue;
      estimate.cut_pieces += parts * heads;
      estimate.partials += parts * item.queries;
    }
    const bool cuts = most_parts > 1;
    const uint64_t piece_cost = kPieceCost + (cuts ? kRowCost * most_queries_ * group : 0);
    const uint64_t rounds = CeilDivide((full + others) * heads, workers);
    const uint64_t full_rounds = CeilDivide(full * heads, workers);
    const uint64_t mean = others == 0 ? 0 : (keys_ - std::min(keys_, full * split)) / others;
    estimate.cost =
        full_rounds * (split + piece_cost) + (rounds - full_rounds) * (mean + piece_cost);
    estimate.cost = std::max<uint64_t>(estimate.cost, std::min(split, longest_) + piece_cost);
    if (cuts) estimate.cost += kMergeCost + most_parts;
    return estimate;
  }

 private:
  std::vector<Item> items_;
  uint64_t keys_ = 0;
  uint32_t longest_ = 0;  // The keys of the longest item.
  uint32_t end_ = 0;      // The end of the last key of any item.
  uint32_t most_queries_ = 0;
};

// The items that can be cut. Decode and longer items have separate launches.
struct Launches {
  Launch decode;
  Launch longer;
};

Launches CuttableItems(const PlanShape& shape, const PlanOptions& options,
                       const SplitLimits& limits) {
  Launches launches;
  const AttentionMask& mask = shape.mask;
  for (size_t s = 0; s < shape.context_lengths.size(); ++s) {
    const int64_t context = shape.context_lengths[s];
    const int64_t queries = int64_t{shape.query_starts[s + 1]} - shape.query_starts[s];
    for (int64_t query = 0; query < queries; query += options.query_tokens) {
      const int64_t count = std::min<int64_t>(options.query_tokens, queries - query);
      if (count > options.split_query_tokens) continue;
      const int64_t position = context - queries + query;
      const int64_t end = mask.causal ? position + count : context;
      Item item = {.first = 0,
                   .end = static_cast<uint32_t>(end),
                   .sinks = 0,
                   .queries = static_cast<uint32_t>(count)};
      if (mask.causal && mask.window_tokens != 0) {
        item.first = static_cast<uint32_t>(std::max<int64_t>(0, position + 1 - mask.window_tokens));
        item.sinks = std::min(mask.sink_tokens, item.first);
      }
      (count <= limits.short_query_tokens ? launches.decode : launches.longer).Add(item);
    }
  }
  return launches;
}

}  // namespace

uint32_t BalancedSplitTokens(const PlanShape& shape, const PlanOptions& options,
                             const SplitLimits& limits) {
  const auto [decode, longer] = CuttableItems(shape, options, limits);
  const uint64_t workers = options.num_workers;
  const auto estimate = [&, &decode = decode, &longer = longer](uint32_t split) {
    const Estimate a = decode.With(split, shape.num_kv_heads, workers, limits.group);
    const Estimate b = longer.With(split, shape.num_kv_heads, workers, limits.group);
    return Estimate{.cost = a.cost + b.cost,
                    .cut_pieces = a.cut_pieces + b.cut_pieces,
                    .partials = a.partials + b.partials};
  };
  const auto in_granules = [granule = limits.granule_tokens](uint32_t tokens) {
    return std::max(1u, CeilDivide(tokens, granule)) * granule;
  };

  // The first candidate cuts nothing, so it is within every limit.
  uint32_t best = in_granules(std::max(decode.end(), longer.end()));
  uint64_t best_cost = estimate(best).cost;
  const uint64_t bound = (decode.keys() + longer.keys()) * shape.num_kv_heads / workers;
  const uint32_t least = longer.empty() ? limits.granule_tokens : limits.long_piece_tokens;
  const uint32_t longest = std::max(decode.longest(), longer.longest());
  uint32_t last = best;
  for (uint32_t parts = 1; best_cost > bound + bound / kNearEnough && last > least;
       parts += std::max(1u, parts / kTriedParts)) {
    const uint32_t split = std::max(least, in_granules(CeilDivide(longest, parts)));
    if (split >= last) continue;
    last = split;
    const Estimate with = estimate(split);
    if (with.cut_pieces > kMostRounds * workers) break;
    if (with.partials > limits.most_partials) continue;
    if (with.cost >= best_cost - best_cost / kLeastGain) continue;
    best = split;
    best_cost = with.cost;
  }
  return best;
}

}  // namespace pagoda::kernels
