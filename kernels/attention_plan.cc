#include "kernels/attention_plan.h"

#include <algorithm>

namespace pagoda::kernels {
namespace {

// The cost of a key beyond the work of its queries, in queries: the read of its K and V.
constexpr uint64_t kKeyCost = 4;

// The cost of an item beyond its keys, in keys.
constexpr uint64_t kItemCost = 16;

uint64_t CostOf(const AttentionItem& item) {
  return (kItemCost + item.end_key - item.first_key) * (kKeyCost + item.num_queries);
}

class Planner {
 public:
  Planner(const PlanShape& shape, const PlanOptions& options) : shape_(shape), options_(options) {}

  AttentionPlan Run() {
    plan_.num_kv_heads = shape_.num_kv_heads;
    for (uint32_t s = 0; s < shape_.context_lengths.size(); ++s) {
      const auto end = static_cast<uint32_t>(shape_.query_starts[s + 1]);
      for (auto first = static_cast<uint32_t>(shape_.query_starts[s]); first < end;
           first += options_.query_tokens) {
        AddQueries(s, first, std::min(options_.query_tokens, end - first));
      }
    }
    ShareOut();
    return std::move(plan_);
  }

 private:
  // Adds the items of some query tokens of sequence s.
  void AddQueries(uint32_t s, uint32_t first, uint32_t count) {
    const int64_t context = shape_.context_lengths[s];
    const int64_t first_position = context - shape_.query_starts[s + 1] + first;
    const int64_t last_position = first_position + count - 1;
    const int64_t end_key = shape_.mask.causal ? last_position + 1 : context;
    const int64_t step = options_.split_tokens;
    // Without cuts, adjacent pieces become one again.
    const bool cut = count <= options_.split_query_tokens;

    parts_.clear();
    for (int64_t key = 0; key < end_key; key = (key / step + 1) * step) {
      const int64_t end = std::min(end_key, (key / step + 1) * step);
      if (!MaySee(shape_.mask, first_position, last_position, key, end - 1)) continue;
      if (!cut && !parts_.empty()) {
        // Keys between two pieces are invisible; the kernel skips them again.
        parts_.back().end = end;
      } else {
        parts_.push_back({key, end});
      }
    }
    if (parts_.empty()) parts_.push_back({0, 0});
    TrimWindow(first_position);

    AttentionItem item{.sequence = s, .first_query = first, .num_queries = count};
    const bool whole = parts_.size() == 1;
    if (!whole) {
      plan_.merges.push_back({.first_query = first,
                              .num_queries = count,
                              .partial = static_cast<uint32_t>(plan_.num_partials),
                              .num_parts = static_cast<uint32_t>(parts_.size())});
    }
    for (const Part& part : parts_) {
      item.first_key = static_cast<uint32_t>(part.first);
      item.end_key = static_cast<uint32_t>(part.end);
      item.partial = AttentionItem::kWhole;
      if (!whole) {
        item.partial = static_cast<uint32_t>(plan_.num_partials);
        plan_.num_partials += count;
      }
      plan_.items.push_back(item);
    }
  }

  // A window's first piece begins with the first key that the first query sees.
  void TrimWindow(int64_t first_position) {
    const AttentionMask& mask = shape_.mask;
    if (mask.window_tokens == 0 || mask.sink_tokens != 0) return;
    Part& part = parts_.front();
    part.first = std::max(part.first, first_position - int64_t{mask.window_tokens} + 1);
  }

  // Gives each worker units of similar cost, in order.
  void ShareOut() {
    const uint64_t heads = shape_.num_kv_heads;
    uint64_t total = 0;
    for (const AttentionItem& item : plan_.items) total += CostOf(item) * heads;
    plan_.worker_starts.assign(options_.num_workers + uint64_t{1}, plan_.items.size() * heads);
    plan_.worker_starts[0] = 0;

    uint64_t cost = 0;  // The cost of the units before this item.
    uint32_t worker = 1;
    for (uint64_t i = 0; i < plan_.items.size(); ++i) {
      const uint64_t unit = CostOf(plan_.items[i]);
      // Worker w starts at the first unit whose middle is behind w shares of the total.
      for (; worker < options_.num_workers; ++worker) {
        const uint64_t start = total / options_.num_workers * worker;
        if (start > cost + unit * heads - unit / 2) break;
        const uint64_t before =
            start > cost + unit / 2 ? (start - cost - unit / 2 + unit - 1) / unit : 0;
        plan_.worker_starts[worker] = i * heads + before;
      }
      cost += unit * heads;
    }
  }

  struct Part {
    int64_t first;
    int64_t end;
  };

  const PlanShape& shape_;
  const PlanOptions& options_;
  std::vector<Part> parts_;
  AttentionPlan plan_;
};

}  // namespace

AttentionPlan PlanAttention(const PlanShape& shape, const PlanOptions& options) {
  return Planner(shape, options).Run();
}

}  // namespace pagoda::kernels
