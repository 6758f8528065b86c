// Numbers for the prefixes of a trace's prompts.
#ifndef PAGODA_CLIENTS_PAGODA_PLAN_TRACE_PREFIX_NODES_H_
#define PAGODA_CLIENTS_PAGODA_PLAN_TRACE_PREFIX_NODES_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"

namespace pagoda {

// Gives each distinct prefix of whole blocks a number, counted from 0. A block of a trace is its id
// and everything before it: some traces give equal blocks after different prefixes the same id.
// Thread-compatible. Cost: O(1) for each block.
class PrefixNodes {
 public:
  // The numbers of the first block, the first two blocks, and so on.
  std::vector<uint32_t> Path(absl::Span<const uint64_t> ids) {
    std::vector<uint32_t> path;
    path.reserve(ids.size());
    uint32_t parent = kRoot;
    for (const uint64_t id : ids) {
      parent = numbers_.try_emplace({parent, id}, size()).first->second;
      path.push_back(parent);
    }
    return path;
  }
  uint32_t size() const { return static_cast<uint32_t>(numbers_.size()); }

 private:
  static constexpr uint32_t kRoot = ~uint32_t{0};

  absl::flat_hash_map<std::pair<uint32_t, uint64_t>, uint32_t> numbers_;
};

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_PAGODA_PLAN_TRACE_PREFIX_NODES_H_
