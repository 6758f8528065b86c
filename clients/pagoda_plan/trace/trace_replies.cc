#include "clients/pagoda_plan/trace/trace_replies.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "clients/pagoda_plan/trace/prefix_nodes.h"

namespace pagoda {
namespace {

using RequestIndex = size_t;

// Ids that the trace does not have: their upper half is one that no id of the trace has.
class FreshIds {
 public:
  explicit FreshIds(absl::Span<const TraceRequest> requests) {
    absl::flat_hash_set<uint32_t> taken;
    for (const TraceRequest& request : requests) {
      for (const uint64_t id : request.hash_ids) taken.insert(static_cast<uint32_t>(id >> 32));
    }
    while (taken.contains(upper_)) --upper_;
  }
  // The first of `count` ids.
  uint64_t Take(uint32_t count) {
    const uint64_t first = uint64_t{upper_} << 32 | next_;
    next_ += count;
    return first;
  }

 private:
  uint32_t upper_ = ~uint32_t{0};
  uint32_t next_ = 0;  // Starts again after 2^32.
};

class Finder {
 public:
  Finder(absl::Span<const TraceRequest> requests, uint32_t tokens_per_block)
      : requests_(requests), tokens_per_block_(tokens_per_block), fresh_(requests) {}

  std::vector<TraceTurn> Find() {
    for (RequestIndex i = 0; i < requests_.size(); ++i) {
      turns_.push_back(Divide(requests_[i]));
      conversations_.push_back(i);
      if (const std::optional<RequestIndex> before = TurnBefore(i)) Continue(*before, i);
      Remember(i);
    }
    for (TraceTurn& turn : turns_) {
      if (!turn.next.has_value()) turn.first_fresh_id = fresh_.Take(turn.reply_blocks);
    }
    return std::move(turns_);
  }

 private:
  TraceTurn Divide(const TraceRequest& request) {
    const uint64_t by_ids = request.hash_ids.size() * uint64_t{tokens_per_block_};
    const uint64_t tokens = std::min<uint64_t>(request.input_tokens.value_or(by_ids), by_ids);
    const size_t full = tokens / tokens_per_block_;
    TraceTurn turn;
    turn.prompt_tokens = static_cast<uint32_t>(tokens);
    turn.output_tokens = request.output_tokens;
    turn.reply_blocks =
        (turn.prompt_tokens + turn.output_tokens) / tokens_per_block_ - static_cast<uint32_t>(full);
    turn.prompt_nodes = nodes_.Path(absl::MakeConstSpan(request.hash_ids).first(full));
    return turn;
  }

  std::optional<RequestIndex> TurnBefore(RequestIndex i) const {
    const TraceRequest& request = requests_[i];
    if (request.parent_chat_id.has_value()) {
      const auto parent = by_chat_id_.find(*request.parent_chat_id);
      if (parent != by_chat_id_.end() && IsNextTurn(parent->second, i)) return parent->second;
      return std::nullopt;
    }
    if (request.chat_id.has_value()) return std::nullopt;  // The first turn.
    const std::vector<uint32_t>& path = turns_[i].prompt_nodes;
    for (auto node = path.rbegin(); node != path.rend(); ++node) {
      const auto ends = open_.find(*node);
      if (ends == open_.end()) continue;
      for (auto before = ends->second.rbegin(); before != ends->second.rend(); ++before) {
        if (IsNextTurn(*before, i)) return *before;
      }
    }
    return std::nullopt;
  }

  bool IsNextTurn(RequestIndex before, RequestIndex after) const {
    const TraceTurn& a = turns_[before];
    const TraceTurn& b = turns_[after];
    return !a.next.has_value() && a.prompt_nodes.size() <= b.prompt_nodes.size() &&
           (a.prompt_nodes.empty() ||
            b.prompt_nodes[a.prompt_nodes.size() - 1] == a.prompt_nodes.back()) &&
           b.prompt_tokens >= uint64_t{a.prompt_tokens} + a.output_tokens;
  }

  void Continue(RequestIndex before, RequestIndex after) {
    turns_[before].next = after;
    conversations_[after] = conversations_[before];
    if (const auto ends =
            open_.find(turns_[before].prompt_nodes.empty() ? ~uint32_t{0}
                                                           : turns_[before].prompt_nodes.back());
        ends != open_.end()) {
      std::erase(ends->second, before);
    }
  }

  // Later requests can be the next turn of this one.
  void Remember(RequestIndex i) {
    if (requests_[i].chat_id.has_value()) {
      by_chat_id_[*requests_[i].chat_id] = i;
      return;
    }
    const std::vector<uint32_t>& path = turns_[i].prompt_nodes;
    owners_.resize(nodes_.size(), kNobody);
    for (auto node = path.rbegin(); node != path.rend() && owners_[*node] == kNobody; ++node) {
      owners_[*node] = conversations_[i];
    }
    if (path.empty() || owners_[path.back()] != conversations_[i]) return;
    std::vector<RequestIndex>& ends = open_[path.back()];
    if (ends.size() == kMostOpen) ends.erase(ends.begin());
    ends.push_back(i);
  }

  static constexpr RequestIndex kNobody = ~RequestIndex{0};
  // Attempts from one prefix that are remembered, so that many equal prompts stay cheap.
  static constexpr size_t kMostOpen = 16;

  const absl::Span<const TraceRequest> requests_;
  const uint32_t tokens_per_block_;
  PrefixNodes nodes_;
  FreshIds fresh_;
  std::vector<TraceTurn> turns_;
  std::vector<RequestIndex> conversations_;  // By request: the first turn.
  std::vector<RequestIndex> owners_;         // By node: the conversation that had it first.
  // By the node of the last full block: requests without a next turn.
  absl::flat_hash_map<uint32_t, std::vector<RequestIndex>> open_;
  absl::flat_hash_map<int64_t, RequestIndex> by_chat_id_;
};

}  // namespace

std::vector<TraceTurn> FindReplies(absl::Span<const TraceRequest> requests,
                                   uint32_t tokens_per_block) {
  return Finder(requests, tokens_per_block).Find();
}

uint64_t ReplyBlockId(absl::Span<const TraceRequest> requests, const TraceTurn& turn, uint32_t k) {
  if (turn.next.has_value()) return requests[*turn.next].hash_ids[turn.prompt_nodes.size() + k];
  return (turn.first_fresh_id & ~uint64_t{0xFFFFFFFF}) |
         static_cast<uint32_t>(turn.first_fresh_id + k);
}

}  // namespace pagoda
