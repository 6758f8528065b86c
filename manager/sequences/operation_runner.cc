#include "manager/sequences/operation_runner.h"

namespace pagoda {

void OperationRunner::ApplyDeadlines(OperationScope& op) {
  deadlines_.next = absl::InfiniteFuture();
  for (const auto& window : windows_) window->Expire(op);
  pins_.Expire(op);
}

Ticket OperationRunner::End(OperationScope& op) {
  if (op.deferring != nullptr) deferred_.Settle(op, *op.deferring);
  windows_.CheckAccounting();
  return op.ready;
}

}  // namespace pagoda
