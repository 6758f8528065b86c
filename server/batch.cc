#include "server/batch.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "pools/error.h"
#include "server/error_map.h"
#include "server/served_fields.h"
#include "server/translate.h"

namespace pagoda::server {
namespace {

absl::StatusOr<Operation> Decode(const v1::Operation& proto) {
  if (absl::Status status = CheckServed(proto); !status.ok()) return status;
  return OperationFromProto(proto);
}

}  // namespace

absl::Status RunBatch(SharedManager& manager, SessionRef session, const v1::Batch& batch,
                      v1::BatchResult* out) {
  const auto count = static_cast<size_t>(batch.operations_size());
  if (count > kMaxBatchOperations) {
    return MakeError(Reason::kBatchTooLarge,
                     absl::StrCat("a batch of ", count, " operations; at most ",
                                  kMaxBatchOperations, " are allowed"));
  }
  out->mutable_results()->Reserve(batch.operations_size());
  std::vector<Operation> operations;
  std::vector<v1::OperationResult*> results;  // Where each of `operations` answers.
  operations.reserve(count);
  results.reserve(count);
  for (const v1::Operation& proto : batch.operations()) {
    v1::OperationResult* result = out->add_results();
    absl::StatusOr<Operation> operation = Decode(proto);
    if (operation.ok()) {
      operations.push_back(*std::move(operation));
      results.push_back(result);
    } else {
      *result->mutable_error() = ToProtoStatus(operation.status());
    }
  }
  const absl::StatusOr<BatchResult> done = manager.Execute(session, operations);
  if (!done.ok()) return done.status();
  for (size_t i = 0; i < results.size(); ++i) OperationResultToProto(done->results[i], results[i]);
  out->set_revision(done->revision.value());
  return absl::OkStatus();
}

}  // namespace pagoda::server
