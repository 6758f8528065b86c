// Which nodes have which prefixes, for a router that mirrors many daemons.
#ifndef PAGODA_CLIENTS_ROUTER_PREFIX_INDEX_H_
#define PAGODA_CLIENTS_ROUTER_PREFIX_INDEX_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "base/strong_id.h"
#include "events/block_hash.h"
#include "pools/types.h"

namespace pagoda {

// A daemon, numbered by its router: below PrefixIndex::kMaxNodes.
using NodeId = StrongId<struct NodeIdTag, uint16_t>;

// An index of chunks: runs of tokens of one length, each named by the hash of the block that ends
// it, which covers all tokens before it. A record says that a node has a chunk in a tier. Records
// are hints: a wrong one costs a request to a node that does not have the prefix.
//
// Memory: 12 bytes a record, in tables that grow when they are 80 % full, to 60 %; 4 bytes for each
// record of a chunk beyond the first eight. Thread-compatible. Cost: expected O(1) for Add and
// Remove, and O(log n) steps and a move of 4 n bytes for a chunk that n nodes have. Find takes
// O(chunks) steps, and for each chunk that it collects from, the number of its nodes times `most`.
// A table that grows moves about a thousandth of all records at once.
//
// Invariants
// 1. At most one record for each node and chunk.
// 2. After Forget, no record of the node that was added before is found. Its memory is freed piece
//    by piece, by later calls.
// 3. No record of a hidden node is found.
class PrefixIndex {
 public:
  static constexpr size_t kMaxNodes = 16'384;

  PrefixIndex();
  ~PrefixIndex();
  PrefixIndex(const PrefixIndex&) = delete;
  PrefixIndex& operator=(const PrefixIndex&) = delete;

  // The node has the chunk, and its nearest copy lies in that tier. Replaces an earlier record.
  void Add(NodeId node, BlockHash chunk, Tier tier);
  // The node no longer has the chunk. Unknown records are ignored.
  void Remove(NodeId node, BlockHash chunk);
  // Drops all records of the node: its lease has ended, its events have a gap, or it has a new
  // epoch. Cost: O(1).
  void Forget(NodeId node);
  // From Hide to Show, Find and TierOf ignore the node's records: its stream is broken. Add, Remove
  // and Forget apply as always. Cost: O(1).
  void Hide(NodeId node);
  void Show(NodeId node);
  // Frees memory in one of the tables, a thousandth of the index: that of forgotten records, and
  // room that is no longer needed. Call it now and then.
  void Sweep();

  struct Match {
    NodeId node;
    uint32_t chunks = 0;       // The prefix has so many chunks on this node.
    Tier tier = kPrimaryTier;  // The tier of the last of them.
    friend bool operator==(const Match&, const Match&) = default;
  };
  // The nodes with the longest prefix of `chunks`, at most `most` of them: longest first, then
  // nearest tier, then by id. A node that has a chunk is taken to have those before it, because a
  // cache evicts a block only after the blocks below it.
  std::vector<Match> Find(absl::Span<const BlockHash> chunks, size_t most) const;

  // The tier of the chunk's nearest copy on the node. nullopt: the node does not have it.
  std::optional<Tier> TierOf(NodeId node, BlockHash chunk) const;

  // Records that are not forgotten, hidden ones too.
  uint64_t size() const { return size_; }
  uint64_t size(NodeId node) const {
    return node.value() < kMaxNodes ? nodes_[node.value()].records : 0;
  }
  // Bytes of memory that the records take, with the room that is kept for more.
  uint64_t memory_bytes() const;

 private:
  // A record in a table.
  struct Record {
    uint32_t hash_low = 0;
    uint32_t hash_high = 0;
    uint16_t node : 14 = 0;
    uint16_t tier : 2 = 0;
    uint16_t generation = 0;  // The node's at the time of Add. 0: the place is empty.
  };
  static_assert(sizeof(Record) == 12);
  // A record of a chunk that has too many for a table.
  struct FurtherRecord {
    uint16_t node : 14;
    uint16_t tier : 2;
    uint16_t generation;
  };
  // Open addressing with linear probing.
  struct Table {
    std::vector<Record> places;
    size_t used = 0;  // With forgotten records.
  };
  struct NodeState {
    uint16_t generation = 1;
    bool hidden = false;
    uint64_t records = 0;
  };
  static constexpr size_t kTables = 1024;
  static constexpr size_t kMaxInTable = 8;  // Records of a chunk. Else they would form long runs.

  static uint64_t HashOf(const Record& record) {
    return uint64_t{record.hash_high} << 32 | record.hash_low;
  }
  template <class SomeRecord>
  bool IsCurrent(const SomeRecord& record) const {
    return nodes_[record.node].generation == record.generation;
  }
  template <class SomeRecord>
  bool IsVisible(const SomeRecord& record) const {
    return IsCurrent(record) && !nodes_[record.node].hidden;
  }
  // Calls `see` with each visible record of the chunk, until it returns false.
  template <class See>
  void Visit(uint64_t hash, const See& see) const;
  static size_t PlaceOf(const Table& table, uint64_t hash);
  Table& TableOf(uint64_t hash);
  const Table& TableOf(uint64_t hash) const {
    return const_cast<PrefixIndex*>(this)->TableOf(hash);
  }
  void Put(Table& table, const Record& record);
  void Take(Table& table, size_t place);
  void Rebuild(Table& table);
  void AddFurther(uint64_t hash, NodeId node, Tier tier);
  bool RemoveFurther(uint64_t hash, NodeId node);
  void PruneFurther();
  void Refill(Table& table, uint64_t hash);
  bool Has(uint64_t hash) const;
  void Collect(uint64_t hash, std::vector<Match>& matches) const;

  std::vector<Table> tables_;
  std::vector<NodeState> nodes_;
  // Further records of chunks that have kMaxInTable records in their table, ascending by node.
  absl::flat_hash_map<uint64_t, std::vector<FurtherRecord>> further_;
  uint64_t size_ = 0;
  size_t next_sweep_ = 0;
};

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_ROUTER_PREFIX_INDEX_H_
