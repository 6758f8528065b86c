// Refuses what this version does not serve: fields that stand for later features, and fields that
// it has never heard of. A client that sets one is told so by name; it is never ignored.
#ifndef PAGODA_WIRE_SERVED_FIELDS_H_
#define PAGODA_WIRE_SERVED_FIELDS_H_

#include "absl/status/status.h"
#include "google/protobuf/message.h"
#include "pagoda/v1/cache.pb.h"

namespace pagoda {

// FIELD_NOT_SERVED with the field's path ("operation_id", "add_sequence.tenant") where `message` or
// a message in it sets a field with the option (pagoda.v1.reserved_for_later), or has an unknown
// field ("add_sequence: unknown field number 77").
//
// The operations of a batch are left out, because each is refused by itself: call this with the
// Operation. Cost: O(messages in the message); repeated numbers are not looked at.
// `message` is of package pagoda.v1. Thread-safe.
absl::Status CheckServed(const google::protobuf::Message& message);
// The same, faster for the operations of which there are many.
absl::Status CheckServed(const v1::Operation& operation);

}  // namespace pagoda

#endif  // PAGODA_WIRE_SERVED_FIELDS_H_
