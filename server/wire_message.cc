#include "server/wire_message.h"

#include "absl/strings/str_cat.h"
#include "grpcpp/impl/codegen/proto_utils.h"
#include "pools/error.h"

namespace pagoda::server {

absl::Status ParseMessage(const grpc::ByteBuffer& bytes, google::protobuf::MessageLite* message) {
  grpc::ByteBuffer read = bytes;  // A share of it: reading uses it up.
  grpc::ProtoBufferReader reader(&read);
  if (reader.status().ok() && message->ParseFromZeroCopyStream(&reader)) return absl::OkStatus();
  return MakeError(Reason::kInvalidArgument,
                   absl::StrCat("the message is no ", message->GetTypeName()));
}

absl::Status SerializeMessage(const google::protobuf::MessageLite& message,
                              grpc::ByteBuffer* bytes) {
  bool own_buffer = false;
  const grpc::Status status =
      grpc::GenericSerialize<grpc::ProtoBufferWriter, google::protobuf::MessageLite>(message, bytes,
                                                                                     &own_buffer);
  if (status.ok()) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("the answer cannot be sent: ", status.error_message()));
}

}  // namespace pagoda::server
