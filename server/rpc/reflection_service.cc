#include "server/rpc/reflection_service.h"

#include <optional>
#include <set>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/error.h"
#include "google/protobuf/descriptor.pb.h"
#include "grpc/health/v1/health.pb.h"
#include "grpc/reflection/v1/reflection.grpc.pb.h"
#include "grpc/reflection/v1alpha/reflection.grpc.pb.h"
#include "server/calls/reactors.h"
#include "wire/bytes/message_bytes.h"
#include "wire/errors.h"

namespace pagoda::server {
namespace {

namespace proto = grpc::reflection::v1;  // v1alpha has the same bytes.
using google::protobuf::DescriptorPool;
using ProtoFile = google::protobuf::FileDescriptor;
using ReflectionReactor = grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>;

constexpr Method kReflectV1 =
    MethodNamed("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo");
constexpr Method kReflectV1Alpha =
    MethodNamed("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo");

// Adds the file, and every file below it that is not in `seen`.
void AddFiles(const ProtoFile& file, std::set<const ProtoFile*>& seen,
              proto::FileDescriptorResponse& out) {
  if (!seen.insert(&file).second) return;
  google::protobuf::FileDescriptorProto described;
  file.CopyTo(&described);
  described.SerializeToString(out.add_file_descriptor_proto());
  for (int i = 0; i < file.dependency_count(); ++i) AddFiles(*file.dependency(i), seen, out);
}

void SetFiles(const ProtoFile* file, const std::string& asked,
              proto::ServerReflectionResponse& out) {
  if (file == nullptr) {
    out.mutable_error_response()->set_error_code(grpc::StatusCode::NOT_FOUND);
    out.mutable_error_response()->set_error_message(absl::StrCat("there is no ", asked));
    return;
  }
  std::set<const ProtoFile*> seen;
  AddFiles(*file, seen, *out.mutable_file_descriptor_response());
}

const ProtoFile* FileOfExtension(const DescriptorPool& pool, const proto::ExtensionRequest& asked) {
  const auto* type = pool.FindMessageTypeByName(asked.containing_type());
  if (type == nullptr) return nullptr;
  const auto* extension = pool.FindExtensionByNumber(type, asked.extension_number());
  return extension == nullptr ? nullptr : extension->file();
}

void SetExtensionNumbers(const DescriptorPool& pool, const std::string& type_name,
                         proto::ServerReflectionResponse& out) {
  const auto* type = pool.FindMessageTypeByName(type_name);
  if (type == nullptr) return SetFiles(nullptr, absl::StrCat("message ", type_name), out);
  auto& numbers = *out.mutable_all_extension_numbers_response();
  numbers.set_base_type_name(type_name);
  std::vector<const google::protobuf::FieldDescriptor*> extensions;
  pool.FindAllExtensions(type, &extensions);
  for (const auto* extension : extensions) numbers.add_extension_number(extension->number());
}

}  // namespace

// One call. It reads a request, writes the answer, and reads on. Thread-safe. It is alive as long
// as its call or another owner.
class ReflectionStream final : public ReflectionReactor {
 public:
  ReflectionStream(const ReflectionService* service, StreamSet<ReflectionStream>* streams,
                   const Identity& caller, StreamSlots::Slot slot)
      : service_(service), streams_(streams), caller_(caller), slot_(std::move(slot)) {}

  void Begin(std::shared_ptr<ReflectionStream> self) {
    self_ = std::move(self);
    absl::MutexLock lock(&mutex_);
    StartSendInitialMetadata();  // The answer begins now: see session_stream.cc.
    StartRead(&request_);
  }

  const Identity& caller() const { return caller_; }

  // Ends the call, after the answer that is being written. The first reason counts.
  void End(const grpc::Status& status) ABSL_LOCKS_EXCLUDED(mutex_) {
    grpc::Status reason;
    {
      absl::MutexLock lock(&mutex_);
      if (!ending_.has_value()) ending_ = status;
      if (writing_ || std::exchange(finished_, true)) return;
      reason = *ending_;
    }
    // Not under the lock, because the call can end before Finish returns.
    Finish(reason);
  }

  void OnReadDone(bool ok) override {
    if (!ok) return End(grpc::Status::OK);  // The client has no more requests.
    const absl::Status answered = Answer();
    if (!answered.ok()) return End(ToGrpcStatus(answered));
    absl::MutexLock lock(&mutex_);
    if (finished_) return;
    writing_ = true;
    StartWrite(&answer_);
  }
  void OnWriteDone(bool ok) override {
    {
      absl::MutexLock lock(&mutex_);
      writing_ = false;
      if (ok && !ending_.has_value()) return StartRead(&request_);
    }
    End(ToGrpcStatus(absl::CancelledError("the client is gone")));
  }
  void OnCancel() override { End(ToGrpcStatus(absl::CancelledError("the client is gone"))); }
  void OnDone() override {
    streams_->Remove(this);
    // The counter of slots can be destroyed before a reader of the set lets this stream go.
    slot_.reset();
    const std::shared_ptr<ReflectionStream> last = std::move(self_);
  }

 private:
  // Errors: MESSAGE_TOO_LARGE; those of ParseMessage and SerializeMessage.
  absl::Status Answer() {
    if (request_.Length() > ReflectionService::kMaxRequestBytes) {
      return MakeError(Reason::kMessageTooLarge,
                       absl::StrCat("a reflection request has ", request_.Length(),
                                    " bytes; it may have ", ReflectionService::kMaxRequestBytes));
    }
    proto::ServerReflectionRequest request;
    if (absl::Status status = ParseMessage(request_, &request); !status.ok()) return status;
    return SerializeMessage(service_->Answer(request), &answer_);
  }

  const ReflectionService* const service_;
  StreamSet<ReflectionStream>* const streams_;
  const Identity caller_;
  std::optional<StreamSlots::Slot> slot_;   // Until the call is over.
  std::shared_ptr<ReflectionStream> self_;  // The call's ownership; given up in OnDone.

  // Used by gRPC while a read or write is outstanding, and by its callbacks otherwise.
  grpc::ByteBuffer request_, answer_;
  absl::Mutex mutex_;  // Locked before gRPC's locks.
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<grpc::Status> ending_ ABSL_GUARDED_BY(mutex_);  // Set by End.
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
};

// One version of the service.
template <class Generated>
class ReflectionService::Version final
    : public Generated::template WithRawCallbackMethod_ServerReflectionInfo<
          typename Generated::Service> {
 public:
  Version(ReflectionService* owner, const Method& method) : owner_(owner), method_(method) {}

  ReflectionReactor* ServerReflectionInfo(grpc::CallbackServerContext* context) override {
    return owner_->Open(context, method_);
  }

 private:
  ReflectionService* const owner_;
  const Method method_;
};

ReflectionService::ReflectionService(std::vector<std::string> services, const ServingState* state,
                                     const Admission* admission)
    : names_(std::move(services)),
      state_(state),
      admission_(admission),
      v1_(std::make_unique<Version<proto::ServerReflection>>(this, kReflectV1)),
      v1alpha_(std::make_unique<Version<grpc::reflection::v1alpha::ServerReflection>>(
          this, kReflectV1Alpha)) {
  names_.emplace_back(proto::ServerReflection::service_full_name());
  names_.emplace_back(grpc::reflection::v1alpha::ServerReflection::service_full_name());
  // gRPC's own health service has no descriptor. This use links in the one of proto/.
  const ProtoFile& health = *grpc::health::v1::HealthCheckRequest::descriptor()->file();
  names_.push_back(health.service(0)->full_name());
}

ReflectionService::~ReflectionService() = default;

std::vector<grpc::Service*> ReflectionService::services() const {
  return {v1_.get(), v1alpha_.get()};
}

ReflectionReactor* ReflectionService::Open(grpc::CallbackServerContext* context,
                                           const Method& method) {
  const absl::StatusOr<ReflectionStream*> stream = Start(context, method);
  if (!stream.ok()) {
    return new RefusedStream<ReflectionReactor>(ToGrpcStatus(stream.status()));
  }
  // Either EndStreamsForDrain finds the new stream in the set, or this check finds the drain.
  if (state_->draining()) (*stream)->End(ToGrpcStatus(Draining()));
  return *stream;
}

absl::StatusOr<ReflectionStream*> ReflectionService::Start(grpc::CallbackServerContext* context,
                                                           const Method& method) {
  const absl::StatusOr<Identity> caller = admission_->Admit(*context, method);
  if (!caller.ok()) return caller.status();
  if (absl::Status status = state_->CheckAcceptsWork(); !status.ok()) return status;
  absl::StatusOr<StreamSlots::Slot> slot = admission_->TakeStream(*caller);
  if (!slot.ok()) return slot.status();
  const auto stream =
      std::make_shared<ReflectionStream>(this, &streams_, *caller, *std::move(slot));
  streams_.Add(stream);
  stream->Begin(stream);
  return stream.get();
}

void ReflectionService::EndStreamsForDrain() {
  for (const std::shared_ptr<ReflectionStream>& stream : streams_.All()) {
    stream->End(ToGrpcStatus(Draining()));
  }
}

void ReflectionService::EndRevokedStreams() {
  for (const std::shared_ptr<ReflectionStream>& stream : streams_.All()) {
    const absl::Status known = admission_->CheckStillKnown(stream->caller());
    if (!known.ok()) stream->End(ToGrpcStatus(known));
  }
}

proto::ServerReflectionResponse ReflectionService::Answer(
    const proto::ServerReflectionRequest& request) const {
  const DescriptorPool& pool = *DescriptorPool::generated_pool();
  proto::ServerReflectionResponse answer;
  answer.set_valid_host(request.host());
  *answer.mutable_original_request() = request;
  switch (request.message_request_case()) {
    case proto::ServerReflectionRequest::kListServices:
      for (const std::string& name : names_) {
        answer.mutable_list_services_response()->add_service()->set_name(name);
      }
      break;
    case proto::ServerReflectionRequest::kFileByFilename:
      SetFiles(pool.FindFileByName(request.file_by_filename()),
               absl::StrCat("file ", request.file_by_filename()), answer);
      break;
    case proto::ServerReflectionRequest::kFileContainingSymbol:
      SetFiles(pool.FindFileContainingSymbol(request.file_containing_symbol()),
               absl::StrCat("symbol ", request.file_containing_symbol()), answer);
      break;
    case proto::ServerReflectionRequest::kFileContainingExtension: {
      const proto::ExtensionRequest& asked = request.file_containing_extension();
      SetFiles(
          FileOfExtension(pool, asked),
          absl::StrCat("extension ", asked.extension_number(), " of ", asked.containing_type()),
          answer);
      break;
    }
    case proto::ServerReflectionRequest::kAllExtensionNumbersOfType:
      SetExtensionNumbers(pool, request.all_extension_numbers_of_type(), answer);
      break;
    case proto::ServerReflectionRequest::MESSAGE_REQUEST_NOT_SET:
      answer.mutable_error_response()->set_error_code(grpc::StatusCode::INVALID_ARGUMENT);
      answer.mutable_error_response()->set_error_message("the request asks for nothing");
      break;
  }
  return answer;
}

}  // namespace pagoda::server
