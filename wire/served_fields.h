// Refuses fields that this version does not know. A newer client that sets one is told so; it is
// never ignored.
#ifndef PAGODA_WIRE_SERVED_FIELDS_H_
#define PAGODA_WIRE_SERVED_FIELDS_H_

#include "absl/status/status.h"
#include "google/protobuf/message.h"
#include "pagoda/v1/cache.pb.h"

namespace pagoda {

// FIELD_NOT_SERVED with the path ("add_sequence.namespace.unknown field number 77") where `message`
// or a message in it has an unknown field.
//
// The operations of a batch are left out, because each is refused by itself: call this with the
// Operation. Cost: O(messages in the message); repeated numbers are not looked at.
// `message` is of package pagoda.v1. Thread-safe.
absl::Status CheckServed(const google::protobuf::Message& message);
// The same, faster for the operations of which there are many.
absl::Status CheckServed(const v1::Operation& operation);

}  // namespace pagoda

#endif  // PAGODA_WIRE_SERVED_FIELDS_H_
