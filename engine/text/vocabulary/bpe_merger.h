// Merges the tokens of one word. Only Bpe's own files include this.
#ifndef PAGODA_ENGINE_TEXT_VOCABULARY_BPE_MERGER_H_
#define PAGODA_ENGINE_TEXT_VOCABULARY_BPE_MERGER_H_

#include <cstdint>
#include <queue>
#include <vector>

#include "engine/text/vocabulary/bpe.h"

namespace pagoda {

// The most important pair first, and of equal ones the leftmost.
class Bpe::Merger {
 public:
  Merger(const Bpe& bpe, const std::vector<TokenId>& tokens) : bpe_(bpe) {
    const auto size = static_cast<uint32_t>(tokens.size());
    nodes_.reserve(size);
    for (uint32_t i = 0; i < size; ++i) {
      nodes_.push_back({tokens[i], i == 0 ? kNone : i - 1, i + 1 == size ? kNone : i + 1});
    }
    for (uint32_t i = 0; i + 1 < size; ++i) Propose(i);
  }

  void Run(std::vector<TokenId>& out) {
    while (!pairs_.empty()) {
      const Pair pair = pairs_.top();
      pairs_.pop();
      if (Holds(pair)) Join(pair);
    }
    // The first node is never merged into one on its left.
    for (uint32_t i = nodes_.empty() ? kNone : 0; i != kNone; i = nodes_[i].next) {
      out.push_back(nodes_[i].token);
    }
  }

 private:
  static constexpr uint32_t kNone = ~uint32_t{0};
  struct Node {
    TokenId token;
    uint32_t previous;
    uint32_t next;
    bool alive = true;
  };
  struct Pair {
    uint32_t rank;
    uint32_t left;  // The left node; the right one was its next node.
    TokenId token;  // Their merged token.
    // The queue's top is its greatest element.
    bool operator<(const Pair& other) const {
      return rank != other.rank ? rank > other.rank : left > other.left;
    }
  };

  const Merge* MergeAt(uint32_t left) const {
    const Node& node = nodes_[left];
    if (node.next == kNone) return nullptr;
    const auto merge = bpe_.merges_.find({node.token, nodes_[node.next].token});
    return merge == bpe_.merges_.end() ? nullptr : &merge->second;
  }

  void Propose(uint32_t left) {
    if (const Merge* merge = MergeAt(left)) pairs_.push({merge->rank, left, merge->token});
  }

  // Whether the pair is still there as it was queued.
  bool Holds(const Pair& pair) const {
    if (!nodes_[pair.left].alive) return false;
    const Merge* merge = MergeAt(pair.left);
    return merge != nullptr && merge->rank == pair.rank;
  }

  void Join(const Pair& pair) {
    Node& left = nodes_[pair.left];
    Node& right = nodes_[left.next];
    right.alive = false;
    left.token = pair.token;
    left.next = right.next;
    if (left.next != kNone) nodes_[left.next].previous = pair.left;
    if (left.previous != kNone) Propose(left.previous);
    Propose(pair.left);
  }

  const Bpe& bpe_;
  std::vector<Node> nodes_;
  std::priority_queue<Pair> pairs_;
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_TEXT_VOCABULARY_BPE_MERGER_H_
