// What a router keeps of a cache: the hash and the tiers of each block that ends a chunk, from
// projected events alone (events/hash_projection.h).
#ifndef PAGODA_TESTS_EVENTS_HASH_MIRROR_H_
#define PAGODA_TESTS_EVENTS_HASH_MIRROR_H_

#include <map>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "events/event.h"

namespace pagoda {

// Thread-compatible.
class HashMirror {
 public:
  struct Entry {
    BlockHash hash;
    Tier tier = kPrimaryTier;
    TierSet lower;
    friend bool operator==(const Entry&, const Entry&) = default;
  };

  // Applies the next part of the projection; a snapshot's parts too. Errors: FailedPrecondition for
  // a part that does not fit. These do not fit:
  // * anything but hashes, tiers, capacities and scopes
  // * a part without anything in it
  // * a hash stored twice
  // * a change of a hash that is not there, or from other tiers than it has
  // * a removal of a hash that is not there
  absl::Status Apply(const Event& event);

  // Errors: FailedPrecondition with an entry that differs from the window's `expected` ones, which
  // may be in any order.
  absl::Status Compare(WindowSize window, absl::Span<const Entry> expected) const;

 private:
  using Entries = absl::flat_hash_map<BlockHash, Entry>;
  static absl::Status ApplyTo(Entries& entries, const CreatedEvent& created);
  static absl::Status ApplyTo(Entries& entries, const StoredEvent& stored);
  static absl::Status ApplyTo(Entries& entries, const UpdatedEvent& updated);
  static absl::Status ApplyTo(Entries& entries, const RemovedEvent& removed);

  std::map<WindowSize, Entries> windows_;
};

}  // namespace pagoda

#endif  // PAGODA_TESTS_EVENTS_HASH_MIRROR_H_
