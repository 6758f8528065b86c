#include "server/calls/checked_service.h"

#include "google/protobuf/descriptor.h"
#include "pagoda/v1/types.pb.h"
#include "wire/bytes/message_bytes.h"
#include "wire/served_fields.h"

namespace pagoda::server {
namespace {

// The messages of other projects can have fields that are new to this version.
bool IsOurs(const google::protobuf::Message& message) {
  return message.GetDescriptor()->file()->package() ==
         v1::SessionRef::descriptor()->file()->package();
}

}  // namespace

void CheckedService::Register(const Method& method, grpc::internal::RpcMethod::RpcType type,
                              grpc::internal::MethodHandler* handler) {
  // The names of kMethods are literals, so each ends with a null character.
  auto* const served = new grpc::internal::RpcServiceMethod(method.name.data(), type, handler);
  served->SetServerApiType(grpc::internal::RpcServiceMethod::ApiType::RAW_CALL_BACK);
  AddMethod(served);
}

absl::StatusOr<Identity> CheckedService::Admit(const grpc::CallbackServerContext& context,
                                               const Method& method,
                                               const grpc::ByteBuffer& bytes) const {
  absl::StatusOr<Identity> caller = admission_->Admit(context, method);
  if (!caller.ok()) return caller;
  if (absl::Status size = admission_->CheckSize(method, bytes.Length()); !size.ok()) return size;
  return caller;
}

absl::Status CheckedService::Read(grpc::ByteBuffer* bytes,
                                  google::protobuf::Message* message) const {
  absl::Status status = ParseMessage(*bytes, message);
  if (status.ok() && IsOurs(*message)) status = CheckServed(*message);
  bytes->Clear();
  return status;
}

}  // namespace pagoda::server
