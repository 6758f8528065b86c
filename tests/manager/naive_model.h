// The core's contract, written as plainly as possible. Cached content is a map of token lists, and
// every search looks at everything. No ids, slots, hashes or linked lists.
#ifndef PAGODA_TESTS_MANAGER_NAIVE_MODEL_H_
#define PAGODA_TESTS_MANAGER_NAIVE_MODEL_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "pools/types.h"

namespace pagoda {

class NaiveModel {
 public:
  using Tokens = std::vector<TokenId>;
  // A cached block: its namespace's salt and all tokens from the root to its own last one.
  using Path = std::pair<std::string, Tokens>;
  // The retention that a sequence asks for: for the blocks of its prompt, and for those behind it.
  struct Wish {
    std::optional<uint8_t> prompt, generated;
  };
  // A session, and one of its sequences.
  using SequenceName = std::pair<uint64_t, uint64_t>;

  struct Counts {
    uint32_t free = 0, cached = 0, active = 0;
    friend bool operator==(const Counts&, const Counts&) = default;
  };

  NaiveModel(uint32_t capacity, uint32_t tokens_per_block)
      : capacity_(capacity), tokens_per_block_(tokens_per_block) {}

  // Each returns the reason with which the core must refuse, or kNone. A refused call changes
  // nothing. `source` is the one of Sources() that the core took, if there are any. Add tells how
  // many tokens must match.
  Reason Add(SequenceName name, const std::string& salt, const Tokens& tokens, uint32_t reserved,
             const Wish& wish, const std::optional<Path>& source, uint32_t* matched);
  Reason Reserve(SequenceName name, uint32_t count);
  Reason Commit(SequenceName name, const Tokens& tokens, uint32_t computed);
  Reason Append(SequenceName name, const Tokens& tokens, uint32_t computed);
  Reason Free(SequenceName name);
  Reason TakeRaw(uint32_t count);
  void FreeRaw(uint32_t count) { raw_ -= count; }
  void Reset();

  uint32_t Match(const std::string& salt, const Tokens& tokens) const;
  // The cached blocks that can be the source of the part of a block at the end of the match: a tail
  // that ends there, else any that shares most.
  std::vector<Path> Sources(const std::string& salt, const Tokens& tokens) const;
  Counts counts() const;
  // Every cached path with its priority, ascending.
  std::vector<std::pair<Path, uint8_t>> Cached() const;
  uint64_t evictions() const { return evictions_; }
  uint64_t copies() const { return copies_; }
  uint64_t taken_over() const { return taken_over_; }
  // Tails that were not cached, because a longer block begins with them.
  uint64_t tails_in_longer() const { return tails_in_longer_; }
  std::vector<SequenceName> Running() const;
  // Tokens of a running sequence; nullptr if there is none.
  const Tokens* TokensOf(SequenceName name) const;
  uint32_t ComputedOf(SequenceName name) const { return sequences_.at(name).computed; }
  uint32_t ReservedOf(SequenceName name) const { return sequences_.at(name).reserved; }

 private:
  // Content that was computed once. It is in the cache, or after a reset only with its holders.
  struct Content {
    Path path;
    uint32_t holders = 0;
    uint8_t priority = 35;
    int64_t age = 0;  // Within a priority the lowest is evicted first. Has a meaning only for
                      // evictable content.
  };
  using ContentPtr =
      std::shared_ptr<Content>;  // Owned by cached_ and by the sequences that hold it.

  struct Sequence {
    std::string salt;
    Tokens tokens;
    Wish wish;
    uint32_t prompt = 0, computed = 0, reserved = 0;
    std::vector<ContentPtr> published;  // One for each full computed block, from the start.
    uint32_t duplicates =
        // Published blocks whose content was cached before. The sequence keeps its own copies too.
        0;
    bool after_reset = false;  // Publishes nothing any more.
    // The block with this index was taken over, and had this priority.
    std::optional<std::pair<size_t, uint8_t>> taken_over;
  };

  uint32_t Blocks(uint64_t tokens) const {
    return static_cast<uint32_t>((tokens + tokens_per_block_ - 1) / tokens_per_block_);
  }
  Reason CheckCapacity(uint64_t reserved) const;
  Path PathOf(const Sequence& sequence, uint32_t tokens) const;
  std::vector<ContentPtr> MatchFull(const std::string& salt, const Tokens& tokens) const;
  std::optional<uint8_t> WishFor(const Sequence& sequence, uint32_t first_token) const;
  bool HasChildren(const Content& content) const;
  uint32_t PrivateBlocks() const;
  void FreeOneSlot(uint32_t blocks);
  void Remove(const ContentPtr& content);
  std::optional<uint8_t> TakenOver(const Sequence& sequence, size_t index) const;
  bool BeginsWith(const Path& longer, const Path& shorter) const;
  ContentPtr Store(const Sequence& sequence, const Path& path, size_t index, bool* is_new);
  void LetGo(const ContentPtr& content);
  void Publish(Sequence& sequence);

  const uint32_t capacity_;
  const uint32_t tokens_per_block_;
  std::map<Path, ContentPtr> cached_;
  std::map<SequenceName, Sequence> sequences_;
  uint32_t raw_ = 0;
  uint64_t evictions_ = 0, copies_ = 0, taken_over_ = 0, tails_in_longer_ = 0;
  int64_t newest_ = 0, oldest_ = 0;
};

}  // namespace pagoda

#endif  // PAGODA_TESTS_MANAGER_NAIVE_MODEL_H_
