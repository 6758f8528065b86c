// How a router's records lie in a Redis or Valkey server. All keys begin with a prefix P.
//
//   P:meta             hash: what all sinks and readers must agree on
//   P:next-node        a counter
//   P:ids              hash: the number of each node, by its name
//   P:n:NUMBER         string, the node's lease: its generation, name, peer address, and whether it
//                      is hidden. Expires
//   P:b:BUCKET         hash: a field for each record of the chunks of this bucket
//   P:events:NUMBER:EPOCH   stream of the changes, with the ids REVISION-0
//
// A field is the chunk's hash (8 bytes) and the node's number (4 bytes). Its value is the node's
// generation (8 bytes) and the tier (1 byte). Integers are little-endian. A record counts only if
// the node's lease has the record's generation and is not hidden. So a dead node is ignored at
// once, and a node whose events had a gap draws a new generation: no record has to be removed for
// that. Records without such a lease are purged later.
//
// The number of buckets is chosen so that most have at most 64 fields. The server keeps such hashes
// in one piece (hash-max-listpack-entries), about 30 bytes a record.
#ifndef PAGODA_CLIENTS_ROUTER_STORE_LAYOUT_H_
#define PAGODA_CLIENTS_ROUTER_STORE_LAYOUT_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "events/block_hash.h"
#include "pools/types.h"

namespace pagoda::router_store {

// The number of a node in the store.
using StoreNode = uint32_t;

struct Record {
  BlockHash chunk;
  StoreNode node = 0;
  uint64_t generation = 0;
  Tier tier = Tier::kPrimary;
};
std::string FieldOf(BlockHash chunk, StoreNode node);
std::string ValueOf(uint64_t generation, Tier tier);
// nullopt: not a record.
std::optional<Record> ParseRecord(absl::string_view field, absl::string_view value);

struct Lease {
  uint64_t generation = 0;
  std::string name;
  std::string peer_address;
  bool hidden = false;  // Its stream is broken. Its records count again if it continues.
};
std::string LeaseText(const Lease& lease);
std::optional<Lease> ParseLease(absl::string_view text);

// What the hash P:meta has.
struct Meta {
  uint32_t buckets = 0;
  uint32_t chunk_tokens = 0;
  uint32_t tokens_per_block = 0;
  std::string model;
  friend bool operator==(const Meta&, const Meta&) = default;
};

inline uint32_t BucketOf(BlockHash chunk, uint32_t buckets) {
  return static_cast<uint32_t>(chunk.value() % buckets);
}

// The names of the keys.
std::string MetaKey(absl::string_view prefix);
std::string NextNodeKey(absl::string_view prefix);
std::string IdsKey(absl::string_view prefix);
std::string LeaseKey(absl::string_view prefix, StoreNode node);
std::string BucketKey(absl::string_view prefix, uint32_t bucket);
std::string EventsKey(absl::string_view prefix, StoreNode node, uint64_t epoch);

}  // namespace pagoda::router_store

#endif  // PAGODA_CLIENTS_ROUTER_STORE_LAYOUT_H_
