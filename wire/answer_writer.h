// Writes the answer to a batch as bytes of the wire, without building its messages.
#ifndef PAGODA_WIRE_ANSWER_WRITER_H_
#define PAGODA_WIRE_ANSWER_WRITER_H_

#include <string>

#include "absl/status/statusor.h"
#include "manager/api/operation.h"
#include "pagoda/v1/cache.pb.h"

namespace pagoda {

// Writes a serialized v1::BatchResult.
class AnswerWriter {
 public:
  // The result of the next operation, or its error.
  void Add(const absl::StatusOr<OperationResult>& result);
  // The rest of the answer: revision, completed tickets, and the sequences that were shortened.
  // The results in `state` are not used. Returns the whole answer. Call it once.
  std::string End(const BatchResult& state);

 private:
  std::string bytes_;
};

// The same result as a message, for programs that print it.
v1::OperationResult OperationResultToProto(const absl::StatusOr<OperationResult>& result);

}  // namespace pagoda

#endif  // PAGODA_WIRE_ANSWER_WRITER_H_
