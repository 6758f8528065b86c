// Errors with a stable reason. Callers act on the reason; the message is for people.
#ifndef PAGODA_BASE_ERROR_H_
#define PAGODA_BASE_ERROR_H_

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"

namespace pagoda {

enum class Reason : uint8_t {
  kNone = 0,             // An OK status, or a status that MakeError did not make.
  kBlocksExhausted,      // Not enough free or evictable blocks; nothing changed. RESOURCE_EXHAUSTED
  kInvalidCount,         // A count of zero, or one that can never be met. INVALID_ARGUMENT
  kInvalidArgument,      // Any other bad argument. INVALID_ARGUMENT
  kUnknownWindow,        // The cache has no such attention window. NOT_FOUND
  kUnknownBlock,         // No block has this id. NOT_FOUND
  kStaleHandle,          // The handle names an earlier use of the block. FAILED_PRECONDITION
  kDoubleFree,           // The block is already free, or twice in one call. FAILED_PRECONDITION
  kForeignBlock,         // The block of another session, or of a sequence. PERMISSION_DENIED
  kUnknownSequence,      // The session has no such sequence. NOT_FOUND
  kSequenceExists,       // The session already has this sequence. ALREADY_EXISTS
  kReservationExceeded,  // More tokens than were reserved. FAILED_PRECONDITION
  kComputedBackwards,    // computed_tokens below an earlier value. INVALID_ARGUMENT
  kComputedBeyondTokens,  // computed_tokens above the tokens named. INVALID_ARGUMENT
  kUnknownSession,        // Never opened. NOT_FOUND
  kStaleSession,          // The session is over, or the token is wrong. FAILED_PRECONDITION
  kTooManySessions,       // The daemon's limit is reached. RESOURCE_EXHAUSTED
  kBatchTooLarge,         // More operations than one batch may hold. INVALID_ARGUMENT
  kFieldNotServed,     // The request sets a field that this version does not serve. UNIMPLEMENTED
  kRevisionCompacted,  // The event log no longer holds the revision. OUT_OF_RANGE
  kRevisionInFuture,   // The event log has not reached the revision. OUT_OF_RANGE
  kEpochChanged,       // The revision belongs to another epoch. OUT_OF_RANGE
  kInvalidPrompt,      // Empty, too long, or a token outside the vocabulary. INVALID_ARGUMENT
  kInvalidSampling,    // A sampling parameter is out of range. INVALID_ARGUMENT
  kNoEngine,           // The daemon runs without a model. FAILED_PRECONDITION
  kDraining,           // The daemon is shutting down. UNAVAILABLE
  kOutOfMemory,        // The memory for the pools is not available. RESOURCE_EXHAUSTED
  kQueueFull,          // Too many requests already wait; try again later. RESOURCE_EXHAUSTED
  kInvalidCheckpoint,  // The model's files are missing, damaged or of another kind.
                       // INVALID_ARGUMENT
  kWindowPassed,       // A sliding window has released tokens that are needed. FAILED_PRECONDITION
  kKvLost,             // A copy failed: the sequence has fewer computed tokens than its client
                       // knows. FAILED_PRECONDITION
  kPinBudgetExceeded,  // The limit of pinned blocks, or of pins, is reached. RESOURCE_EXHAUSTED
  kUnknownPin,         // Never made, unpinned, or its lease ran out. NOT_FOUND
  kStepBackwards,      // step or completed_step below an earlier one, or completed_step above step.
                       // INVALID_ARGUMENT
  kUnknownTicket,      // No copy has this ticket yet. NOT_FOUND
  kWaitTimeout,        // The copies took longer than a batch waits. DEADLINE_EXCEEDED
  kTenantQuotaExceeded,  // The tenant's quota of blocks is used; nothing changed.
                         // RESOURCE_EXHAUSTED
  kUnknownTenant,        // No tenant of the configuration has this name. NOT_FOUND
  kUnauthenticated,      // No credentials, or unknown ones. UNAUTHENTICATED
  kPermissionDenied,     // The caller is not allowed to do this. PERMISSION_DENIED
  kTooManyCalls,         // More calls at once than the daemon admits. RESOURCE_EXHAUSTED
  kUnknownQuarantine,    // No session of this id is quarantined. NOT_FOUND
  kMessageTooLarge,      // The request is above the limit of bytes. INVALID_ARGUMENT
  kWriterAlive,          // A process that can write the slots is alive. FAILED_PRECONDITION
  // The limit on sequences is reached; nothing changed. RESOURCE_EXHAUSTED
  kTooManySequences,
  // The limit on the bytes that sequences keep besides their blocks is reached; nothing changed.
  // RESOURCE_EXHAUSTED
  kSequenceBytesExhausted,
  // The cache holds the KV of another model, or does not say of which model. FAILED_PRECONDITION
  kModelMismatch,
  kUnknownCache,   // The daemon has no cache of this name. NOT_FOUND
  kCacheNotNamed,  // There are several caches, and the request names none. FAILED_PRECONDITION
  // The name belongs to a cache with another identity, other layers or another tenant.
  // ALREADY_EXISTS
  kCacheMismatch,
  kCacheInUse,        // The cache has sessions. FAILED_PRECONDITION
  kTooManyCaches,     // The limit on open caches is reached. RESOURCE_EXHAUSTED
  kThreadsExhausted,  // The system refuses a further thread. RESOURCE_EXHAUSTED
  // A client's key is empty or too long. INVALID_ARGUMENT
  kInvalidKey,
  // Keys for a namespace or sequence that has tokens, or tokens for one that has keys.
  // INVALID_ARGUMENT
  kKeysAndTokens,
  // A length of a keyed sequence is not a whole number of blocks. INVALID_ARGUMENT
  kWholeBlocksOnly,
  kBlockFinalized,  // Nothing may be written into the block any more. FAILED_PRECONDITION
  kUnknownAdapter,  // The engine has no adapter of this name. NOT_FOUND
};

// The reason's stable name: "BLOCKS_EXHAUSTED".
std::string_view ReasonName(Reason reason);
// kNone if no reason has this name.
Reason ReasonFromName(std::string_view name);
// The status code that belongs to a reason.
absl::StatusCode ReasonCode(Reason reason);

// A status with the reason's code and the reason as a payload.
absl::Status MakeError(Reason reason, std::string_view message);
// An error with the reason INVALID_ARGUMENT. `what` names the field and its value.
absl::Status InvalidArgument(std::string_view what);
// The reason of a status made by MakeError; kNone for any other.
Reason ReasonOf(const absl::Status& status);

}  // namespace pagoda

#endif  // PAGODA_BASE_ERROR_H_
