#include "wire/bytes/message_bytes.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/error.h"
#include "base/processor_turn.h"
#include "google/protobuf/io/zero_copy_stream.h"
#include "grpcpp/impl/codegen/proto_utils.h"
#include "wire/bytes/request_bounds.h"

namespace pagoda {
namespace {

// Blocks double up to the largest size. Messages of a few KiB never reach the mapped sizes.
constexpr size_t kLeastMappedBytes = size_t{256} << 10;
constexpr size_t kMaxBlockBytes = size_t{1} << 20;
// A block of a list of numbers can be larger. It is freed in pieces of a thread's turn.
constexpr size_t kMostFreedBytes = size_t{4} << 20;

// Gives the pages of a mapping their memory, in pieces of a thread's turn. To touch them first in
// one copy of many MiB takes milliseconds.
void Populate(char* block, size_t bytes) {
  for (size_t done = 0; done < bytes; done += kLeastMappedBytes) {
    const size_t piece = std::min(kLeastMappedBytes, bytes - done);
    // Older kernels refuse. Then the first use of each page does the same.
    if (madvise(block + done, piece, MADV_POPULATE_WRITE) != 0) return;
    EndProcessorTurnIfOver();
  }
}

void* AllocateBlock(size_t bytes) {
  if (bytes < kLeastMappedBytes) return ::operator new(bytes);
  void* block = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (block == MAP_FAILED) throw std::bad_alloc();  // Like operator new.
  Populate(static_cast<char*>(block), bytes);
  return block;
}

void FreeBlock(void* block, size_t bytes) {
  if (bytes < kLeastMappedBytes) return ::operator delete(block);
  for (size_t done = 0; done < bytes; done += kMostFreedBytes) {
    char* const piece = static_cast<char*>(block) + done;
    const size_t size = std::min(kMostFreedBytes, bytes - done);
    // The system refuses to split a mapping if the process has too many. Then the memory returns,
    // and only its addresses stay taken.
    PAGODA_CHECK(munmap(piece, size) == 0 || madvise(piece, size, MADV_DONTNEED) == 0,
                 "an arena's block is mapped until it is freed");
    EndProcessorTurnIfOver();
  }
}

// Reads a message's slices, and ends the thread's turn between two of them if it is over.
class SliceReader final : public google::protobuf::io::ZeroCopyInputStream {
 public:
  explicit SliceReader(grpc::ByteBuffer* bytes) : slices_(bytes) {}
  bool ok() const { return slices_.status().ok(); }
  bool Next(const void** data, int* size) override {
    EndProcessorTurnIfOver();
    return slices_.Next(data, size);
  }
  void BackUp(int count) override { slices_.BackUp(count); }
  bool Skip(int count) override { return slices_.Skip(count); }
  int64_t ByteCount() const override { return slices_.ByteCount(); }

 private:
  grpc::ProtoBufferReader slices_;
};

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
    SliceReader reader(&checked);
    if (reader.ok()) {
      absl::Status status = CheckRequestBounds(*message->GetDescriptor(), &reader);
      if (!status.ok()) return status;
    }
  }
  grpc::ByteBuffer read = bytes;  // A second reference to the bytes. Reading empties this one only.
  SliceReader reader(&read);
  if (reader.ok() && message->ParseFromZeroCopyStream(&reader)) return absl::OkStatus();
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
