// What a reader of AnswerWriter's bytes sees.
#ifndef PAGODA_TESTS_WIRE_RESULT_MESSAGES_H_
#define PAGODA_TESTS_WIRE_RESULT_MESSAGES_H_

#include "absl/status/statusor.h"
#include "base/check.h"
#include "pagoda/v1/cache.pb.h"
#include "wire/answer_writer.h"

namespace pagoda {

// Writes the result of a batch with one operation.
inline void OperationResultToProto(const absl::StatusOr<OperationResult>& result,
                                   v1::OperationResult* out) {
  *out = OperationResultToProto(result);
}

// Writes the state of a batch without operations.
inline void BatchStateToProto(const BatchResult& state, v1::BatchResult* out) {
  PAGODA_CHECK(out->ParseFromString(AnswerWriter().End(state)), "an answer can be parsed");
}

}  // namespace pagoda

#endif  // PAGODA_TESTS_WIRE_RESULT_MESSAGES_H_
