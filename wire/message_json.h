// Messages as JSON: the one form in which the daemon's HTTP API and the command line print them.
#ifndef PAGODA_WIRE_MESSAGE_JSON_H_
#define PAGODA_WIRE_MESSAGE_JSON_H_

#include <string>

#include "absl/status/statusor.h"
#include "google/protobuf/message.h"

namespace pagoda {

// The message as protobuf's JSON on one line, with the field names of proto/ and with the fields
// that are 0, false, "" or empty. Messages and optional fields that are not set are left out.
// server/STATUS.md explains the form for readers.
//
// A byte of a string that is not UTF-8 becomes U+FFFD. Error: INTERNAL for a time or a duration
// beyond 10,000 years, which protobuf's JSON cannot express. Cost: linear in the message.
absl::StatusOr<std::string> JsonOf(const google::protobuf::Message& message);

}  // namespace pagoda

#endif  // PAGODA_WIRE_MESSAGE_JSON_H_
