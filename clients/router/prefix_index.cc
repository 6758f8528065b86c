#include "clients/router/prefix_index.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "base/check.h"

namespace pagoda {
namespace {

constexpr size_t kMinPlaces = 16;
constexpr double kMaxLoad = 0.8;
constexpr double kLoadAfterGrowth = 0.6;
constexpr double kMinLoad = 0.3;  // Sweep rebuilds tables with a lower load.

// Spreads hashes that differ in few bits. An odd factor and a shift, as in SplitMix64.
uint64_t Mixed(uint64_t hash) {
  hash *= 0x9E3779B97F4A7C15u;
  return hash ^ hash >> 32;
}

}  // namespace

PrefixIndex::PrefixIndex() : tables_(kTables), nodes_(kMaxNodes) {}
PrefixIndex::~PrefixIndex() = default;

PrefixIndex::Table& PrefixIndex::TableOf(uint64_t hash) {
  return tables_[Mixed(hash) >> 54];  // kTables is 2^10.
}

// Where the search for a hash begins.
size_t PrefixIndex::PlaceOf(const Table& table, uint64_t hash) {
  return (Mixed(hash) & 0xffffffff) * table.places.size() >> 32;
}

void PrefixIndex::Add(NodeId node, BlockHash chunk, Tier tier) {
  PAGODA_CHECK(node.value() < kMaxNodes, "a node's number is in range");
  const uint64_t hash = chunk.value();
  Table& table = TableOf(hash);
  if (static_cast<double>(table.used + 1) > kMaxLoad * static_cast<double>(table.places.size())) {
    Rebuild(table);
  }
  Record record;
  record.hash_low = static_cast<uint32_t>(hash);
  record.hash_high = static_cast<uint32_t>(hash >> 32);
  record.node = node.value();
  record.tier = tier.value();
  record.generation = nodes_[node.value()].generation;
  Record* forgotten = nullptr;  // A forgotten record of the same chunk. Its place can be taken.
  size_t same = 0;
  for (size_t i = PlaceOf(table, hash); table.places[i].generation != 0;
       i = i + 1 == table.places.size() ? 0 : i + 1) {
    Record& other = table.places[i];
    if (HashOf(other) != hash) continue;
    ++same;
    const bool is_current = IsCurrent(other);
    if (is_current && other.node == record.node) {
      other.tier = record.tier;
      return;
    }
    if (!is_current && forgotten == nullptr) forgotten = &other;
  }
  if (same >= kMaxInTable) {
    // The node can have a record among the further ones.
    if (forgotten == nullptr) return AddFurther(hash, node, tier);
    RemoveFurther(hash, node);
  }
  ++size_;
  ++nodes_[node.value()].records;
  if (forgotten != nullptr) {
    *forgotten = record;
  } else {
    Put(table, record);
  }
}

// REQUIRES: there is an empty place.
void PrefixIndex::Put(Table& table, const Record& record) {
  size_t i = PlaceOf(table, HashOf(record));
  while (table.places[i].generation != 0) i = i + 1 == table.places.size() ? 0 : i + 1;
  table.places[i] = record;
  ++table.used;
}

// Empties a place, and moves later records of the run so that each is still found.
void PrefixIndex::Take(Table& table, size_t place) {
  const size_t size = table.places.size();
  for (size_t i = place + 1 == size ? 0 : place + 1; table.places[i].generation != 0;
       i = i + 1 == size ? 0 : i + 1) {
    const size_t home = PlaceOf(table, HashOf(table.places[i]));
    // The record may move to `place` unless its home lies behind that, up to i.
    const bool is_between = place < i ? place < home && home <= i : place < home || home <= i;
    if (is_between) continue;
    table.places[place] = table.places[i];
    place = i;
  }
  table.places[place] = Record();
  --table.used;
}

void PrefixIndex::Remove(NodeId node, BlockHash chunk) {
  PAGODA_CHECK(node.value() < kMaxNodes, "a node's number is in range");
  const uint64_t hash = chunk.value();
  Table& table = TableOf(hash);
  if (table.places.empty()) return;
  size_t same = 0;
  for (size_t i = PlaceOf(table, hash); table.places[i].generation != 0;
       i = i + 1 == table.places.size() ? 0 : i + 1) {
    const Record& record = table.places[i];
    if (HashOf(record) != hash) continue;
    ++same;
    if (record.node != node.value() || !IsCurrent(record)) continue;
    Take(table, i);
    --size_;
    --nodes_[node.value()].records;
    if (!further_.empty()) Refill(table, hash);
    return;
  }
  if (same >= kMaxInTable) RemoveFurther(hash, node);
}

void PrefixIndex::AddFurther(uint64_t hash, NodeId node, Tier tier) {
  std::vector<FurtherRecord>& records = further_[hash];
  const auto found = std::lower_bound(
      records.begin(), records.end(), node.value(),
      [](const FurtherRecord& record, uint16_t number) { return record.node < number; });
  const FurtherRecord record = {
      .node = node.value(), .tier = tier.value(), .generation = nodes_[node.value()].generation};
  if (found != records.end() && found->node == node.value()) {
    const bool was_current = IsCurrent(*found);
    *found = record;
    if (was_current) return;
  } else {
    records.insert(found, record);
  }
  ++size_;
  ++nodes_[node.value()].records;
}

bool PrefixIndex::RemoveFurther(uint64_t hash, NodeId node) {
  const auto records = further_.find(hash);
  if (records == further_.end()) return false;
  const auto found = std::lower_bound(
      records->second.begin(), records->second.end(), node.value(),
      [](const FurtherRecord& record, uint16_t number) { return record.node < number; });
  if (found == records->second.end() || found->node != node.value()) return false;
  const bool was_current = IsCurrent(*found);
  records->second.erase(found);
  if (records->second.empty()) further_.erase(records);
  if (!was_current) return false;
  --size_;
  --nodes_[node.value()].records;
  return true;
}

// A record of the chunk has left the table: one of the further records takes its place.
void PrefixIndex::Refill(Table& table, uint64_t hash) {
  const auto records = further_.find(hash);
  if (records == further_.end()) return;
  while (!records->second.empty()) {
    const FurtherRecord last = records->second.back();
    records->second.pop_back();
    if (!IsCurrent(last)) continue;
    Record record;
    record.hash_low = static_cast<uint32_t>(hash);
    record.hash_high = static_cast<uint32_t>(hash >> 32);
    record.node = last.node;
    record.tier = last.tier;
    record.generation = last.generation;
    Put(table, record);
    break;
  }
  if (records->second.empty()) further_.erase(records);
}

// Drops forgotten records, and makes room for more if needed.
void PrefixIndex::Rebuild(Table& table) {
  std::vector<Record> old = std::exchange(table.places, {});
  table.used = 0;
  size_t current = 0;
  for (const Record& record : old) current += record.generation != 0 && IsCurrent(record) ? 1 : 0;
  std::vector<uint64_t> refill;
  // Refills need room too: at most one for each forgotten record of a chunk with further ones.
  if (!further_.empty()) {
    for (const Record& record : old) {
      if (record.generation != 0 && !IsCurrent(record) && further_.contains(HashOf(record))) {
        refill.push_back(HashOf(record));
      }
    }
  }
  const double wanted = static_cast<double>(current + refill.size() + 1) / kLoadAfterGrowth;
  table.places.resize(std::max(kMinPlaces, static_cast<size_t>(wanted)));
  for (const Record& record : old) {
    if (record.generation != 0 && IsCurrent(record)) Put(table, record);
  }
  for (const uint64_t hash : refill) Refill(table, hash);
}

void PrefixIndex::Forget(NodeId node) {
  PAGODA_CHECK(node.value() < kMaxNodes, "a node's number is in range");
  NodeState& state = nodes_[node.value()];
  size_ -= std::exchange(state.records, 0);
  if (state.generation < std::numeric_limits<uint16_t>::max()) {
    ++state.generation;
    return;
  }
  // A number would come a second time, so the records of the first time have to go. That is once in
  // 65,535 calls.
  state.generation = 0;
  for (Table& table : tables_) {
    if (!table.places.empty()) Rebuild(table);
  }
  PruneFurther();
  state.generation = 1;
}

// Drops the forgotten ones of the further records.
void PrefixIndex::PruneFurther() {
  for (auto it = further_.begin(); it != further_.end();) {
    std::erase_if(it->second, [this](const FurtherRecord& record) { return !IsCurrent(record); });
    it->second.shrink_to_fit();
    const auto here = it++;
    if (here->second.empty()) further_.erase(here);
  }
}

void PrefixIndex::Hide(NodeId node) {
  PAGODA_CHECK(node.value() < kMaxNodes, "a node's number is in range");
  nodes_[node.value()].hidden = true;
}

void PrefixIndex::Show(NodeId node) {
  PAGODA_CHECK(node.value() < kMaxNodes, "a node's number is in range");
  nodes_[node.value()].hidden = false;
}

void PrefixIndex::Sweep() {
  const size_t number = next_sweep_++ % kTables;
  // There are few such chunks, so once in a round is enough.
  if (number == 0) PruneFurther();
  Table& table = tables_[number];
  const bool has_forgotten = std::any_of(
      table.places.begin(), table.places.end(),
      [this](const Record& record) { return record.generation != 0 && !IsCurrent(record); });
  const bool is_too_large =
      table.places.size() > kMinPlaces &&
      static_cast<double>(table.used) < kMinLoad * static_cast<double>(table.places.size());
  if (has_forgotten || is_too_large) Rebuild(table);
}

template <class See>
void PrefixIndex::Visit(uint64_t hash, const See& see) const {
  const Table& table = TableOf(hash);
  if (table.places.empty()) return;
  size_t same = 0;
  for (size_t i = PlaceOf(table, hash); table.places[i].generation != 0;
       i = i + 1 == table.places.size() ? 0 : i + 1) {
    if (HashOf(table.places[i]) != hash) continue;
    ++same;
    if (IsVisible(table.places[i]) && !see(table.places[i])) return;
  }
  if (same < kMaxInTable) return;
  const auto further = further_.find(hash);
  if (further == further_.end()) return;
  for (const FurtherRecord& record : further->second) {
    if (IsVisible(record) && !see(record)) return;
  }
}

// Whether any node has the chunk.
bool PrefixIndex::Has(uint64_t hash) const {
  bool has = false;
  Visit(hash, [&](const auto&) {
    has = true;
    return false;
  });
  return has;
}

// Appends the nodes that have the chunk.
void PrefixIndex::Collect(uint64_t hash, std::vector<Match>& matches) const {
  Visit(hash, [&](const auto& record) {
    matches.push_back({.node = NodeId(record.node), .tier = Tier(record.tier)});
    return true;
  });
}

std::optional<Tier> PrefixIndex::TierOf(NodeId node, BlockHash chunk) const {
  std::optional<Tier> tier;
  Visit(chunk.value(), [&](const auto& record) {
    if (record.node == node.value()) tier = Tier(record.tier);
    return !tier.has_value();
  });
  return tier;
}

std::vector<PrefixIndex::Match> PrefixIndex::Find(absl::Span<const BlockHash> chunks,
                                                  size_t most) const {
  size_t depth = 0;
  while (depth < chunks.size() && Has(chunks[depth].value())) ++depth;
  std::vector<Match> found, level;
  for (size_t left = depth; left > 0 && found.size() < most; --left) {
    level.clear();
    Collect(chunks[left - 1].value(), level);
    std::erase_if(level, [&](const Match& match) {
      return std::any_of(found.begin(), found.end(),
                         [&](const Match& other) { return other.node == match.node; });
    });
    const size_t taken = std::min(level.size(), most - found.size());
    std::partial_sort(level.begin(), level.begin() + static_cast<ptrdiff_t>(taken), level.end(),
                      [](const Match& a, const Match& b) {
                        return std::tie(a.tier, a.node) < std::tie(b.tier, b.node);
                      });
    for (size_t i = 0; i < taken; ++i) {
      level[i].chunks = static_cast<uint32_t>(left);
      found.push_back(level[i]);
    }
  }
  return found;
}

uint64_t PrefixIndex::memory_bytes() const {
  uint64_t bytes =
      sizeof(*this) + tables_.capacity() * sizeof(Table) + nodes_.capacity() * sizeof(NodeState);
  for (const Table& table : tables_) bytes += table.places.capacity() * sizeof(Record);
  bytes += further_.capacity() * (sizeof(uint64_t) + sizeof(std::vector<FurtherRecord>) + 1);
  for (const auto& [hash, records] : further_) {
    bytes += records.capacity() * sizeof(FurtherRecord);
  }
  return bytes;
}

}  // namespace pagoda
