// The projection of the event stream onto hashes, by chunks of tokens: what a router that compares
// hashes needs of it.
#ifndef PAGODA_EVENTS_HASH_PROJECTION_H_
#define PAGODA_EVENTS_HASH_PROJECTION_H_

#include <cstdint>
#include <optional>

#include "events/event.h"

namespace pagoda {

// The part of an event that is about blocks which end a chunk of `chunk_tokens` tokens, counted
// from the prompt's start; none if nothing is left. A reader that applies the parts in order has
// the hash and the tiers of each such block of the tree. The result has the event's envelope, and:
// * of a Stored event the hashes and tiers of such blocks, in order (StoredEvent::hashes_only);
// * of an Updated event the block's hash and the changes of its tiers, with kNoBlock as its id;
// * of a Removed event the hashes of such blocks, or its scope;
// * of a Created event the capacities.
//
// A block outside the tree, a tail, a change of priority and the end of a pin leave no part.
// REQUIRES: `chunk_tokens` is a positive multiple of the cache's tokens_per_block, so that no tail
// ends a chunk. Thread-safe. Cost: O(blocks of the event).
std::optional<Event> ProjectOntoHashes(const Event& event, uint32_t chunk_tokens);

}  // namespace pagoda

#endif  // PAGODA_EVENTS_HASH_PROJECTION_H_
