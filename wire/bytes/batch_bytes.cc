#include "wire/bytes/batch_bytes.h"

#include <algorithm>
#include <array>

#include "absl/hash/hash.h"
#include "base/check.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/wire_format_lite.h"
#include "pagoda/v1/cache.pb.h"

namespace pagoda {
namespace {

using google::protobuf::io::CodedInputStream;
using google::protobuf::io::CodedOutputStream;
using WireFormat = google::protobuf::internal::WireFormatLite;

constexpr uint32_t Tag(int number, WireFormat::WireType type) {
  return static_cast<uint32_t>(number << 3 | type);
}
constexpr uint32_t kBatch =
    Tag(v1::SessionRequest::kBatchFieldNumber, WireFormat::WIRETYPE_LENGTH_DELIMITED);
constexpr uint32_t kResult =
    Tag(v1::SessionResponse::kResultFieldNumber, WireFormat::WIRETYPE_LENGTH_DELIMITED);
constexpr uint32_t kBatchId =
    Tag(v1::SessionResponse::kBatchIdFieldNumber, WireFormat::WIRETYPE_VARINT);
static_assert(kBatch == Tag(v1::ExecuteRequest::kBatchFieldNumber,
                            WireFormat::WIRETYPE_LENGTH_DELIMITED) &&
                  kResult == Tag(v1::ExecuteResponse::kResultFieldNumber,
                                 WireFormat::WIRETYPE_LENGTH_DELIMITED),
              "a batch has the same bytes in a call and on a stream");

// Up to this many bytes one slice is faster than one that shares the answer.
constexpr size_t kCopiedBytes = size_t{4} << 10;

std::string NumberField(uint32_t tag, uint64_t value) {
  std::array<uint8_t, 15> bytes;
  uint8_t* end = CodedOutputStream::WriteVarint32ToArray(tag, bytes.data());
  end = CodedOutputStream::WriteVarint64ToArray(value, end);
  return {bytes.data(), end};
}

}  // namespace

uint64_t BatchFingerprint(absl::string_view request) {
  CodedInputStream in(reinterpret_cast<const uint8_t*>(request.data()),
                      static_cast<int>(request.size()));
  uint64_t fingerprint = 0;
  while (const uint32_t tag = in.ReadTag()) {
    if (tag != kBatch) {
      if (!WireFormat::SkipField(&in, tag)) break;
      continue;
    }
    uint32_t size;
    if (!in.ReadVarint32(&size)) break;
    const auto begin = static_cast<size_t>(in.CurrentPosition());
    fingerprint = absl::HashOf(fingerprint, request.substr(begin, size));
    if (!in.Skip(static_cast<int>(size))) break;
  }
  return fingerprint;
}

uint64_t BatchFingerprint(const grpc::ByteBuffer& request) {
  grpc::Slice slice;
  if (!request.TrySingleSlice(&slice).ok()) {
    PAGODA_CHECK(request.DumpToSingleSlice(&slice).ok(), "a message that was parsed has bytes");
  }
  return BatchFingerprint({reinterpret_cast<const char*>(slice.begin()), slice.size()});
}

ResponseFrame FrameOf(const std::string& answer, uint64_t batch_id) {
  return {.head = NumberField(kResult, answer.size()),
          .tail = batch_id == 0 ? "" : NumberField(kBatchId, batch_id)};
}

grpc::ByteBuffer ResponseBytes(const BatchAnswer& answer, uint64_t batch_id) {
  const ResponseFrame frame = FrameOf(*answer, batch_id);
  if (answer->size() <= kCopiedBytes) {
    grpc::Slice slice(frame.head.size() + answer->size() + frame.tail.size());
    auto* to = const_cast<uint8_t*>(slice.begin());
    for (const std::string* piece : {&frame.head, answer.get(), &frame.tail}) {
      to = std::copy(piece->begin(), piece->end(), to);
    }
    return {&slice, 1};
  }
  const auto release = [](void* shared) { delete static_cast<BatchAnswer*>(shared); };
  const std::array<grpc::Slice, 3> slices = {
      grpc::Slice(frame.head),
      grpc::Slice(const_cast<char*>(answer->data()), answer->size(), release,
                  new BatchAnswer(answer)),
      grpc::Slice(frame.tail)};
  return {slices.data(), slices.size()};
}

}  // namespace pagoda
