// Converts the results of a batch between the core's values and the wire, field by field. The
// daemon writes bytes without building messages.
#ifndef PAGODA_WIRE_RESULTS_H_
#define PAGODA_WIRE_RESULTS_H_

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

// Errors: the error of the operation, by reason; INTERNAL for a result without content, with an
// unknown enum value, or with blocks that are not whole rows.
absl::StatusOr<OperationResult> OperationResultFromProto(const v1::OperationResult& proto);
// The whole batch's result.
BatchResult BatchResultFromProto(const v1::BatchResult& proto);

}  // namespace pagoda

#endif  // PAGODA_WIRE_RESULTS_H_
