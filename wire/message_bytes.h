// Messages that handlers parse and serialize themselves, of methods that gRPC hands over raw.
#ifndef PAGODA_WIRE_MESSAGE_BYTES_H_
#define PAGODA_WIRE_MESSAGE_BYTES_H_

#include "absl/status/status.h"
#include "google/protobuf/arena.h"
#include "google/protobuf/message_lite.h"
#include "grpcpp/support/byte_buffer.h"

namespace pagoda {

// For the arena that a message is parsed into. The arena's large blocks are mapped one by one, so
// their memory is the system's again as soon as the arena is reset. malloc would keep it for the
// thread that parsed the message, once for each thread that ever parsed a large one.
google::protobuf::ArenaOptions MessageArenaOptions();

// Errors: INVALID_ARGUMENT (the bytes are no such message).
absl::Status ParseMessage(const grpc::ByteBuffer& bytes, google::protobuf::MessageLite* message);

// Errors: INTERNAL (a message of more than 2 GiB).
absl::Status SerializeMessage(const google::protobuf::MessageLite& message,
                              grpc::ByteBuffer* bytes);

}  // namespace pagoda

#endif  // PAGODA_WIRE_MESSAGE_BYTES_H_
