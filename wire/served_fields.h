// Refuses fields that this version does not know. The daemon never ignores one, so a newer client
// learns that the daemon would not do what it asks.
#ifndef PAGODA_WIRE_SERVED_FIELDS_H_
#define PAGODA_WIRE_SERVED_FIELDS_H_

#include "absl/status/status.h"
#include "google/protobuf/message.h"
#include "pagoda/v1/cache.pb.h"

namespace pagoda {

// FIELD_NOT_SERVED with the path ("add_sequence.namespace.unknown field number 77") if `message` or
// a message in it has an unknown field. REQUIRES: `message` is of package pagoda.v1. Thread-safe.
// Cost: O(messages in the message), whatever the length of repeated numbers.
//
// Skips the operations of a batch, because each is refused by itself. Call this with each
// Operation.
absl::Status CheckServed(const google::protobuf::Message& message);
// The same, faster for the frequent operations.
absl::Status CheckServed(const v1::Operation& operation);

}  // namespace pagoda

#endif  // PAGODA_WIRE_SERVED_FIELDS_H_
