#include "manager/tree/prefix_uses.h"

#include <algorithm>

namespace pagoda {
namespace {

// The sums of a node.
struct Sum {
  uint64_t hits = 0;
  uint64_t most_of_a_child = 0;
  uint32_t children = 0;  // Not summed up yet.
  uint32_t depth = 0;     // In blocks, from the root.
};

// The nodes of the tree, children before parents. Nodes in a cycle are left out. Nodes below a
// cycle or a missing node get no depth later.
std::vector<uint32_t> SumUp(absl::Span<const PrefixNode> nodes, std::vector<Sum>& sums) {
  const auto count = static_cast<uint32_t>(nodes.size());
  const auto parent_of = [&](uint32_t id) {
    return nodes[id].in_tree() && nodes[id].parent < count ? nodes[id].parent : count;
  };
  for (uint32_t id = 0; id < count; ++id) {
    if (const uint32_t parent = parent_of(id); parent < count) ++sums[parent].children;
  }
  std::vector<uint32_t> order;
  for (uint32_t id = 0; id < count; ++id) {
    if (nodes[id].in_tree() && sums[id].children == 0) order.push_back(id);
  }
  for (size_t i = 0; i < order.size(); ++i) {
    const uint32_t id = order[i];
    Sum& sum = sums[id];
    sum.hits += nodes[id].match_ends;
    const uint32_t parent = parent_of(id);
    if (parent == count || !nodes[parent].in_tree()) continue;
    Sum& above = sums[parent];
    above.hits += sum.hits;
    above.most_of_a_child = std::max(above.most_of_a_child, sum.hits);
    if (--above.children == 0) order.push_back(parent);
  }
  return order;
}

void MeasureDepths(absl::Span<const PrefixNode> nodes, absl::Span<const uint32_t> order,
                   std::vector<Sum>& sums) {
  for (size_t i = order.size(); i-- > 0;) {
    const uint32_t id = order[i];
    const uint32_t parent = nodes[id].parent;
    if (parent == PrefixNode::kAtRoot) {
      sums[id].depth = 1;
    } else if (parent < nodes.size() && sums[parent].depth != 0) {
      sums[id].depth = sums[parent].depth + 1;
    }
  }
}

bool GoesOn(const Sum& sum) { return sum.most_of_a_child * 10 >= sum.hits * 9; }

}  // namespace

std::vector<UsedPrefix> TopPrefixes(absl::Span<const PrefixNode> nodes, size_t limit) {
  std::vector<Sum> sums(nodes.size());
  const std::vector<uint32_t> order = SumUp(nodes, sums);
  MeasureDepths(nodes, order, sums);
  std::vector<uint32_t> found;
  for (const uint32_t id : order) {
    if (sums[id].hits != 0 && sums[id].depth != 0 && !GoesOn(sums[id])) found.push_back(id);
  }
  const auto saves_more = [&](uint32_t a, uint32_t b) {
    const uint64_t saved_a = sums[a].hits * sums[a].depth;
    const uint64_t saved_b = sums[b].hits * sums[b].depth;
    return saved_a != saved_b ? saved_a > saved_b : a < b;
  };
  limit = std::min(limit, found.size());
  std::partial_sort(found.begin(), found.begin() + static_cast<ptrdiff_t>(limit), found.end(),
                    saves_more);
  std::vector<UsedPrefix> top;
  for (const uint32_t last : absl::MakeConstSpan(found).first(limit)) {
    uint32_t first = last;
    while (nodes[first].parent != PrefixNode::kAtRoot) first = nodes[first].parent;
    top.push_back({.first = {BlockId{first}, nodes[first].generation},
                   .last = {BlockId{last}, nodes[last].generation},
                   .blocks = sums[last].depth,
                   .hits = sums[last].hits});
  }
  return top;
}

}  // namespace pagoda
