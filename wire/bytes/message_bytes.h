// Parsing and serializing of messages, for handlers that get raw bytes from gRPC.
#ifndef PAGODA_WIRE_BYTES_MESSAGE_BYTES_H_
#define PAGODA_WIRE_BYTES_MESSAGE_BYTES_H_

#include "absl/status/status.h"
#include "google/protobuf/arena.h"
#include "google/protobuf/message.h"
#include "grpcpp/support/byte_buffer.h"

namespace pagoda {

// Options for the arena that a message is parsed into. The arena maps its large blocks one by one,
// so their memory returns to the system as soon as the arena is reset. malloc would keep such
// memory once for each thread that ever parsed a large message.
google::protobuf::ArenaOptions MessageArenaOptions();

// Errors: those of CheckRequestBounds; INVALID_ARGUMENT (the bytes are not a message of this type).
absl::Status ParseMessage(const grpc::ByteBuffer& bytes, google::protobuf::Message* message);

// Replaces what `bytes` holds. Errors: INTERNAL (the message has more than 2 GiB).
absl::Status SerializeMessage(const google::protobuf::Message& message, grpc::ByteBuffer* bytes);

}  // namespace pagoda

#endif  // PAGODA_WIRE_BYTES_MESSAGE_BYTES_H_
