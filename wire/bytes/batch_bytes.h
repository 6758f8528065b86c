// A batch and its answer as the bytes that came and went.
#ifndef PAGODA_WIRE_BYTES_BATCH_BYTES_H_
#define PAGODA_WIRE_BYTES_BATCH_BYTES_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "grpcpp/support/byte_buffer.h"

namespace pagoda {

// A serialized v1::BatchResult. It is written once: what is remembered for a retry is what was
// sent.
using BatchAnswer = std::shared_ptr<const std::string>;

// Tells a batch from others under the same retry_id: a hash of the bytes of the field `batch`.
// `request`: a serialized ExecuteRequest or SessionRequest. Equal only within one process.
uint64_t BatchFingerprint(absl::string_view request);
uint64_t BatchFingerprint(const grpc::ByteBuffer& request);

// The bytes around a BatchAnswer in an ExecuteResponse or a SessionResponse: head, answer, tail.
struct ResponseFrame {
  std::string head;
  std::string tail;
};
// `batch_id`: of a SessionResponse; 0 if there is none.
ResponseFrame FrameOf(const std::string& answer, uint64_t batch_id);

// The whole response. A long answer is not copied: the bytes share it.
grpc::ByteBuffer ResponseBytes(const BatchAnswer& answer, uint64_t batch_id);

}  // namespace pagoda

#endif  // PAGODA_WIRE_BYTES_BATCH_BYTES_H_
