#include "base/error.h"

#include <array>
#include <string>

#include "absl/strings/cord.h"

namespace pagoda {
namespace {

constexpr std::string_view kPayloadUrl = "pagoda/reason";

struct Row {
  Reason reason;
  std::string_view name;
  absl::StatusCode code;
};

using enum absl::StatusCode;

// In the order of the enum.
constexpr std::array kRows = {
    Row{Reason::kNone, "", kUnknown},
    Row{Reason::kBlocksExhausted, "BLOCKS_EXHAUSTED", kResourceExhausted},
    Row{Reason::kInvalidCount, "INVALID_COUNT", kInvalidArgument},
    Row{Reason::kInvalidArgument, "INVALID_ARGUMENT", kInvalidArgument},
    Row{Reason::kUnknownWindow, "UNKNOWN_WINDOW", kNotFound},
    Row{Reason::kUnknownBlock, "UNKNOWN_BLOCK", kNotFound},
    Row{Reason::kStaleHandle, "STALE_HANDLE", kFailedPrecondition},
    Row{Reason::kDoubleFree, "DOUBLE_FREE", kFailedPrecondition},
    Row{Reason::kForeignBlock, "FOREIGN_BLOCK", kPermissionDenied},
    Row{Reason::kUnknownSequence, "UNKNOWN_SEQUENCE", kNotFound},
    Row{Reason::kSequenceExists, "SEQUENCE_EXISTS", kAlreadyExists},
    Row{Reason::kReservationExceeded, "RESERVATION_EXCEEDED", kFailedPrecondition},
    Row{Reason::kComputedBackwards, "COMPUTED_BACKWARDS", kInvalidArgument},
    Row{Reason::kComputedBeyondTokens, "COMPUTED_BEYOND_TOKENS", kInvalidArgument},
    Row{Reason::kUnknownSession, "UNKNOWN_SESSION", kNotFound},
    Row{Reason::kStaleSession, "STALE_SESSION", kFailedPrecondition},
    Row{Reason::kTooManySessions, "TOO_MANY_SESSIONS", kResourceExhausted},
    Row{Reason::kBatchTooLarge, "BATCH_TOO_LARGE", kInvalidArgument},
    Row{Reason::kFieldNotServed, "FIELD_NOT_SERVED", kUnimplemented},
    Row{Reason::kRevisionCompacted, "REVISION_COMPACTED", kOutOfRange},
    Row{Reason::kRevisionInFuture, "REVISION_IN_FUTURE", kOutOfRange},
    Row{Reason::kEpochChanged, "EPOCH_CHANGED", kOutOfRange},
    Row{Reason::kInvalidPrompt, "INVALID_PROMPT", kInvalidArgument},
    Row{Reason::kInvalidSampling, "INVALID_SAMPLING", kInvalidArgument},
    Row{Reason::kNoEngine, "NO_ENGINE", kFailedPrecondition},
    Row{Reason::kDraining, "DRAINING", kUnavailable},
    Row{Reason::kOutOfMemory, "OUT_OF_MEMORY", kResourceExhausted},
    Row{Reason::kQueueFull, "QUEUE_FULL", kResourceExhausted},
    Row{Reason::kInvalidCheckpoint, "INVALID_CHECKPOINT", kInvalidArgument},
    Row{Reason::kWindowPassed, "WINDOW_PASSED", kFailedPrecondition},
    Row{Reason::kKvLost, "KV_LOST", kFailedPrecondition},
    Row{Reason::kPinBudgetExceeded, "PIN_BUDGET_EXCEEDED", kResourceExhausted},
    Row{Reason::kUnknownPin, "UNKNOWN_PIN", kNotFound},
    Row{Reason::kStepBackwards, "STEP_BACKWARDS", kInvalidArgument},
    Row{Reason::kUnknownTicket, "UNKNOWN_TICKET", kNotFound},
    Row{Reason::kWaitTimeout, "WAIT_TIMEOUT", kDeadlineExceeded},
    Row{Reason::kTenantQuotaExceeded, "TENANT_QUOTA_EXCEEDED", kResourceExhausted},
    Row{Reason::kUnknownTenant, "UNKNOWN_TENANT", kNotFound},
    Row{Reason::kUnauthenticated, "UNAUTHENTICATED", kUnauthenticated},
    Row{Reason::kPermissionDenied, "PERMISSION_DENIED", kPermissionDenied},
    Row{Reason::kTooManyCalls, "TOO_MANY_CALLS", kResourceExhausted},
    Row{Reason::kUnknownQuarantine, "UNKNOWN_QUARANTINE", kNotFound},
    Row{Reason::kMessageTooLarge, "MESSAGE_TOO_LARGE", kInvalidArgument},
    Row{Reason::kWriterAlive, "WRITER_ALIVE", kFailedPrecondition},
    Row{Reason::kTooManySequences, "TOO_MANY_SEQUENCES", kResourceExhausted},
    Row{Reason::kSequenceBytesExhausted, "SEQUENCE_BYTES_EXHAUSTED", kResourceExhausted},
    Row{Reason::kModelMismatch, "MODEL_MISMATCH", kFailedPrecondition},
    Row{Reason::kUnknownCache, "UNKNOWN_CACHE", kNotFound},
    Row{Reason::kCacheNotNamed, "CACHE_NOT_NAMED", kFailedPrecondition},
    Row{Reason::kCacheMismatch, "CACHE_MISMATCH", kAlreadyExists},
    Row{Reason::kCacheInUse, "CACHE_IN_USE", kFailedPrecondition},
    Row{Reason::kTooManyCaches, "TOO_MANY_CACHES", kResourceExhausted},
    Row{Reason::kThreadsExhausted, "THREADS_EXHAUSTED", kResourceExhausted},
    Row{Reason::kInvalidKey, "INVALID_KEY", kInvalidArgument},
    Row{Reason::kKeysAndTokens, "KEYS_AND_TOKENS", kInvalidArgument},
    Row{Reason::kWholeBlocksOnly, "WHOLE_BLOCKS_ONLY", kInvalidArgument},
    Row{Reason::kBlockFinalized, "BLOCK_FINALIZED", kFailedPrecondition},
    Row{Reason::kUnknownAdapter, "UNKNOWN_ADAPTER", kNotFound},
};

constexpr bool InOrder() {
  for (size_t i = 0; i < kRows.size(); ++i) {
    if (static_cast<size_t>(kRows[i].reason) != i) return false;
  }
  return kRows.size() == static_cast<size_t>(Reason::kUnknownAdapter) + 1;
}
static_assert(InOrder(), "one row for each reason, in the enum's order");

const Row& RowOf(Reason reason) { return kRows[static_cast<size_t>(reason)]; }

}  // namespace

std::string_view ReasonName(Reason reason) { return RowOf(reason).name; }

Reason ReasonFromName(std::string_view name) {
  for (const Row& row : kRows) {
    if (row.name == name) return row.reason;
  }
  return Reason::kNone;
}

absl::StatusCode ReasonCode(Reason reason) { return RowOf(reason).code; }

absl::Status MakeError(Reason reason, std::string_view message) {
  absl::Status status(ReasonCode(reason), absl::string_view(message.data(), message.size()));
  const std::string_view name = ReasonName(reason);
  status.SetPayload(absl::string_view(kPayloadUrl.data(), kPayloadUrl.size()),
                    absl::Cord(absl::string_view(name.data(), name.size())));
  return status;
}

absl::Status InvalidArgument(std::string_view what) {
  return MakeError(Reason::kInvalidArgument, what);
}

Reason ReasonOf(const absl::Status& status) {
  const auto payload = status.GetPayload(absl::string_view(kPayloadUrl.data(), kPayloadUrl.size()));
  return payload.has_value() ? ReasonFromName(std::string(*payload)) : Reason::kNone;
}

}  // namespace pagoda
