// Errors with a stable reason. A caller decides by the reason; the message is for people.
#ifndef PAGODA_BASE_ERROR_H_
#define PAGODA_BASE_ERROR_H_

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"

namespace pagoda {

enum class Reason : uint8_t {
  kNone = 0,             // An OK status, or one made elsewhere.
  kBlocksExhausted,      // Not enough free or evictable blocks; nothing changed. RESOURCE_EXHAUSTED
  kInvalidCount,         // A count that is zero or can never be met. INVALID_ARGUMENT
  kInvalidArgument,      // Any other bad argument. INVALID_ARGUMENT
  kUnknownWindow,        // The cache has no such attention window. NOT_FOUND
  kUnknownBlock,         // No block has this id. NOT_FOUND
  kStaleHandle,          // The block was freed since; this handle names an earlier life.
                         // FAILED_PRECONDITION
  kDoubleFree,           // The block is free already, or twice in one call. FAILED_PRECONDITION
  kForeignBlock,         // Another session's block, or a sequence's. PERMISSION_DENIED
  kUnknownSequence,      // The session has no such sequence. NOT_FOUND
  kSequenceExists,       // The session has it already. ALREADY_EXISTS
  kReservationExceeded,  // More tokens than the room taken for them. FAILED_PRECONDITION
  kComputedBackwards,    // computed_tokens below an earlier value. INVALID_ARGUMENT
  kComputedBeyondTokens,  // computed_tokens above the tokens named. INVALID_ARGUMENT
  kUnknownSession,        // Never opened. NOT_FOUND
  kStaleSession,          // The session is over, or the token is not its. FAILED_PRECONDITION
  kTooManySessions,       // The daemon's limit is reached. RESOURCE_EXHAUSTED
  kBatchTooLarge,         // More operations than one batch may hold. INVALID_ARGUMENT
  kFieldNotServed,     // The request sets a field that this version does not serve. UNIMPLEMENTED
  kRevisionCompacted,  // The event log no longer holds the revision. OUT_OF_RANGE
  kRevisionInFuture,   // The event log has not reached the revision. OUT_OF_RANGE
  kEpochChanged,       // The revision belongs to another incarnation. OUT_OF_RANGE
  kInvalidPrompt,      // Empty, too long, or a token outside the vocabulary. INVALID_ARGUMENT
  kInvalidSampling,    // A parameter of sampling is out of its range. INVALID_ARGUMENT
  kNoEngine,           // The daemon runs without a model. FAILED_PRECONDITION
  kDraining,           // The daemon is shutting down. UNAVAILABLE
  kOutOfMemory,        // Memory for the pools could not be had. RESOURCE_EXHAUSTED
  kQueueFull,          // Too many requests wait already; try again later. RESOURCE_EXHAUSTED
  kInvalidCheckpoint,  // The model's files are missing, damaged or of another kind.
                       // INVALID_ARGUMENT
  kWindowPassed,       // Tokens that a sliding window has released are needed. FAILED_PRECONDITION
  kKvLost,             // A copy failed: the sequence has fewer computed tokens than its client
                       // thinks. FAILED_PRECONDITION
  kPinBudgetExceeded,  // More blocks would be pinned than may be. RESOURCE_EXHAUSTED
  kUnknownPin,         // Never made, unpinned, or its lease ran out. NOT_FOUND
  kStepBackwards,      // step or completed_step below an earlier one, or completed_step above step.
                       // INVALID_ARGUMENT
  kUnknownTicket,      // No copy has this ticket yet. NOT_FOUND
  kWaitTimeout,        // The ticket was not done in time. DEADLINE_EXCEEDED
  kBlockFinalized,     // The block is cached: its bytes are everybody's, and nobody writes them.
                       // FAILED_PRECONDITION
  kTenantQuotaExceeded,  // The tenant has as many blocks as it may; nothing changed.
                         // RESOURCE_EXHAUSTED
  kUnknownTenant,        // No tenant of the configuration has this name. NOT_FOUND
  kUnauthenticated,      // No credentials, or none that the daemon knows. UNAUTHENTICATED
  kPermissionDenied,     // The caller may not do this, or not there. PERMISSION_DENIED
  kTooManyCalls,         // More calls at once than the daemon admits. RESOURCE_EXHAUSTED
  kUnknownQuarantine,    // No session of this id is quarantined. NOT_FOUND
  kMessageTooLarge,      // A request of more bytes than may be. INVALID_ARGUMENT
  kWriterAlive,          // A process that could write the slots lives. FAILED_PRECONDITION
  // As many sequences run as may; nothing changed. RESOURCE_EXHAUSTED
  kTooManySequences,
  // The sequences keep as many bytes beside their blocks as they may; nothing changed.
  // RESOURCE_EXHAUSTED
  kSequenceBytesExhausted,
  // The cache holds the KV of another model, or does not say of which. FAILED_PRECONDITION
  kModelMismatch,
  kUnknownCache,   // The daemon has no cache of this name. NOT_FOUND
  kCacheNotNamed,  // There are several caches, and the request names none. FAILED_PRECONDITION
  // The name is that of a cache with another identity, other layers or another tenant.
  // ALREADY_EXISTS
  kCacheMismatch,
  kCacheInUse,     // The cache has sessions. FAILED_PRECONDITION
  kTooManyCaches,  // As many caches are open as may be. RESOURCE_EXHAUSTED
  // A client's key is empty or longer than a key may be. INVALID_ARGUMENT
  kInvalidKey,
  // Keys where the namespace or the sequence has tokens, or tokens where it has keys.
  // INVALID_ARGUMENT
  kKeysAndTokens,
  // A length that is no whole number of blocks, of a sequence that is keyed. INVALID_ARGUMENT
  kWholeBlocksOnly,
};

// The reason's stable name: "BLOCKS_EXHAUSTED".
std::string_view ReasonName(Reason reason);
// The reason with that name; kNone where there is none.
Reason ReasonFromName(std::string_view name);
// The one status code that goes with a reason.
absl::StatusCode ReasonCode(Reason reason);

// A status with the reason's code and the reason as a payload.
absl::Status MakeError(Reason reason, std::string_view message);
// The reason of a status made by MakeError; kNone for any other.
Reason ReasonOf(const absl::Status& status);

}  // namespace pagoda

#endif  // PAGODA_BASE_ERROR_H_
