// Messages that handlers parse and serialize themselves, of methods that gRPC hands over raw.
#ifndef PAGODA_SERVER_WIRE_MESSAGE_H_
#define PAGODA_SERVER_WIRE_MESSAGE_H_

#include "absl/status/status.h"
#include "google/protobuf/message_lite.h"
#include "grpcpp/support/byte_buffer.h"

namespace pagoda::server {

// Errors: INVALID_ARGUMENT (the bytes are no such message).
absl::Status ParseMessage(const grpc::ByteBuffer& bytes, google::protobuf::MessageLite* message);

// Errors: INTERNAL (a message of more than 2 GiB).
absl::Status SerializeMessage(const google::protobuf::MessageLite& message,
                              grpc::ByteBuffer* bytes);

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_WIRE_MESSAGE_H_
