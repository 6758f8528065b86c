#include "wire/message_bytes.h"

#include <sys/mman.h>

#include <cstddef>
#include <new>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/error.h"
#include "grpcpp/impl/codegen/proto_utils.h"
#include "wire/request_bounds.h"

namespace pagoda {
namespace {

// Blocks double up to the largest size. Messages of a few KiB never reach the mapped sizes.
constexpr size_t kLeastMappedBytes = size_t{256} << 10;
constexpr size_t kMaxBlockBytes = size_t{1} << 20;

void* AllocateBlock(size_t bytes) {
  if (bytes < kLeastMappedBytes) return ::operator new(bytes);
  void* block = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (block == MAP_FAILED) throw std::bad_alloc();  // Like operator new.
  return block;
}

void FreeBlock(void* block, size_t bytes) {
  if (bytes < kLeastMappedBytes) return ::operator delete(block);
  PAGODA_CHECK(munmap(block, bytes) == 0, "an arena's block is mapped until it is freed");
}

}  // namespace

google::protobuf::ArenaOptions MessageArenaOptions() {
  google::protobuf::ArenaOptions options;
  options.max_block_size = kMaxBlockBytes;
  options.block_alloc = AllocateBlock;
  options.block_dealloc = FreeBlock;
  return options;
}

absl::Status ParseMessage(const grpc::ByteBuffer& bytes, google::protobuf::Message* message) {
  if (bytes.Length() >= kLeastCheckedBytes) {
    grpc::ByteBuffer checked = bytes;
    grpc::ProtoBufferReader reader(&checked);
    if (reader.status().ok()) {
      absl::Status status = CheckRequestBounds(*message->GetDescriptor(), &reader);
      if (!status.ok()) return status;
    }
  }
  grpc::ByteBuffer read = bytes;  // A second reference to the bytes. Reading empties this one only.
  grpc::ProtoBufferReader reader(&read);
  if (reader.status().ok() && message->ParseFromZeroCopyStream(&reader)) return absl::OkStatus();
  return MakeError(Reason::kInvalidArgument,
                   absl::StrCat("the message is not a ", message->GetTypeName()));
}

absl::Status SerializeMessage(const google::protobuf::Message& message, grpc::ByteBuffer* bytes) {
  bytes->Clear();  // gRPC stops the process if its writer finds bytes.
  bool own_buffer = false;
  const grpc::Status status =
      grpc::GenericSerialize<grpc::ProtoBufferWriter, google::protobuf::MessageLite>(message, bytes,
                                                                                     &own_buffer);
  if (status.ok()) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("the answer cannot be sent: ", status.error_message()));
}

}  // namespace pagoda
