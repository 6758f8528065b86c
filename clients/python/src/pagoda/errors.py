"""Exceptions, one class for each family of the daemon's reasons.

`reason` is the daemon's stable name for the error, such as "BLOCKS_EXHAUSTED" (see
server/ERRORS.md). It is "" if the error is not the daemon's: the connection failed, a deadline
passed, or a message was too large.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import grpc

from pagoda._contract import rpc

_CODES = {code.value[0]: code for code in grpc.StatusCode}


class Details(NamedTuple):
    """An error as received."""

    code: grpc.StatusCode
    message: str
    reason: str = ""
    metadata: Mapping[str, str] = {}
    retry_after: float | None = None


class PagodaError(Exception):
    """An operation or a call failed and changed nothing. If there was no answer (TimedOut or
    Unavailable without a reason), it is unknown whether it ran."""

    def __init__(self, details: Details) -> None:
        super().__init__(f"{details.reason or details.code.name}: {details.message}")
        self.code = details.code
        self.message = details.message
        self.reason = details.reason
        self.metadata = details.metadata
        """The daemon's further data, by name."""
        self.retry_after = details.retry_after
        """Seconds after which a retry may succeed, if the daemon gives them."""


class Exhausted(PagodaError):
    """A resource is exhausted: BLOCKS_EXHAUSTED, PIN_BUDGET_EXCEEDED, TOO_MANY_SESSIONS,
    TOO_MANY_CALLS, QUEUE_FULL, OUT_OF_MEMORY; or, without a reason, a limit of gRPC."""


class BadRequest(PagodaError):
    """The request can never succeed in this form: INVALID_COUNT, INVALID_ARGUMENT,
    COMPUTED_BACKWARDS, ..."""


class NotFound(PagodaError):
    """The request names something that does not exist: UNKNOWN_SEQUENCE, UNKNOWN_PIN,
    UNKNOWN_TICKET, ..."""


class Conflict(PagodaError):
    """The request does not fit the current state: STALE_HANDLE, DOUBLE_FREE, RESERVATION_EXCEEDED,
    WINDOW_PASSED, CACHE_NOT_NAMED (the daemon has several caches: name one), CACHE_MISMATCH, ..."""


class SessionGone(PagodaError):
    """The session is over, and everything that it owned is gone: UNKNOWN_SESSION, STALE_SESSION.
    Connect again, and open the sequences again."""


class NotServed(PagodaError):
    """The daemon does not support the request: FIELD_NOT_SERVED, or a call that it does not
    know."""


class Unauthenticated(PagodaError):
    """The daemon does not know the caller: no credentials, or unknown ones (UNAUTHENTICATED)."""


class PermissionDenied(PagodaError):
    """The daemon knows the caller but does not permit the call: an operator's call, or another
    tenant's name (PERMISSION_DENIED)."""


class Unavailable(PagodaError):
    """No daemon answers (no reason), or it is shutting down (DRAINING)."""


class CannotMap(PagodaError):
    """This process cannot map the pools' memory (no reason): the daemon is on another machine or
    has no map socket, or this user may not connect to it."""


class TimedOut(PagodaError):
    """WAIT_TIMEOUT: the copies were not done in time. Without a reason: no answer came in time, and
    it is unknown whether the operations ran; Sequence.describe shows it."""


class WatchRefused(PagodaError):
    """The event stream cannot start at this revision: REVISION_COMPACTED, REVISION_IN_FUTURE,
    EPOCH_CHANGED."""

    @property
    def oldest_revision(self) -> int:
        """The oldest revision that the daemon still has."""
        return int(self.metadata.get("oldest_revision", 0))

    @property
    def next_revision(self) -> int:
        """The revision that the next event will have."""
        return int(self.metadata.get("next_revision", 0))

    @property
    def epoch(self) -> int:
        """The daemon's epoch."""
        return int(self.metadata.get("epoch", "0"), 16)


class Loss(NamedTuple):
    """The computed tokens that a sequence lost because copies failed."""

    sequence_id: int
    computed_tokens: int
    losses: int
    must_be_freed: bool


class KvLost(PagodaError):
    """Copies failed, and a sequence lost KV with them (KV_LOST).

    Call Sequence.acknowledge with this error. Then compute the tokens from `computed_tokens` on
    again, into the sequence's blocks. Earlier commits are refused, because they could declare lost
    KV complete. With `must_be_freed`, a sliding window has passed the lost tokens, and the sequence
    can only be freed.
    """

    def __init__(self, details: Details, loss: Loss) -> None:
        super().__init__(details)
        self.sequence_id = loss.sequence_id
        self.computed_tokens = loss.computed_tokens
        """Tokens from the sequence's start whose KV is complete."""
        self.losses = loss.losses
        """How often the sequence has lost KV so far."""
        self.must_be_freed = loss.must_be_freed

    @classmethod
    def of(cls, loss: Loss) -> "KvLost":
        then = "it can only be freed" if loss.must_be_freed else f"its KV is complete for its first {loss.computed_tokens} tokens"
        message = f"copies of sequence {loss.sequence_id} failed; {then}"
        return cls(Details(grpc.StatusCode.FAILED_PRECONDITION, message, "KV_LOST"), loss)


class BatchFailed(ExceptionGroup[PagodaError]):
    """Operations of a batch failed, each by itself. The others ran. `except*` handles the errors by
    class."""

    def derive(self, excs: Sequence[PagodaError]) -> "BatchFailed":  # type: ignore[override]
        return BatchFailed(self.message, excs)


_FAMILIES: dict[str, type[PagodaError]] = {
    "BLOCKS_EXHAUSTED": Exhausted,
    "PIN_BUDGET_EXCEEDED": Exhausted,
    "TOO_MANY_SESSIONS": Exhausted,
    "TOO_MANY_SEQUENCES": Exhausted,
    "SEQUENCE_BYTES_EXHAUSTED": Exhausted,
    "QUEUE_FULL": Exhausted,
    "OUT_OF_MEMORY": Exhausted,
    "TENANT_QUOTA_EXCEEDED": Exhausted,
    "TOO_MANY_CALLS": Exhausted,
    "TOO_MANY_CACHES": Exhausted,
    "THREADS_EXHAUSTED": Exhausted,
    "INVALID_COUNT": BadRequest,
    "INVALID_ARGUMENT": BadRequest,
    "COMPUTED_BACKWARDS": BadRequest,
    "COMPUTED_BEYOND_TOKENS": BadRequest,
    "STEP_BACKWARDS": BadRequest,
    "BATCH_TOO_LARGE": BadRequest,
    "INVALID_PROMPT": BadRequest,
    "INVALID_SAMPLING": BadRequest,
    "INVALID_CHECKPOINT": BadRequest,
    "INVALID_KEY": BadRequest,
    "KEYS_AND_TOKENS": BadRequest,
    "WHOLE_BLOCKS_ONLY": BadRequest,
    "UNKNOWN_WINDOW": NotFound,
    "UNKNOWN_BLOCK": NotFound,
    "UNKNOWN_SEQUENCE": NotFound,
    "UNKNOWN_PIN": NotFound,
    "UNKNOWN_TICKET": NotFound,
    "UNKNOWN_TENANT": NotFound,
    "UNKNOWN_QUARANTINE": NotFound,
    "UNKNOWN_CACHE": NotFound,
    "UNKNOWN_ADAPTER": NotFound,
    "STALE_HANDLE": Conflict,
    "DOUBLE_FREE": Conflict,
    "WINDOW_PASSED": Conflict,
    "FOREIGN_BLOCK": Conflict,
    "BLOCK_FINALIZED": Conflict,
    "SEQUENCE_EXISTS": Conflict,
    "RESERVATION_EXCEEDED": Conflict,
    "NO_ENGINE": Conflict,
    "MESSAGE_TOO_LARGE": BadRequest,
    "WRITER_ALIVE": Conflict,
    "MODEL_MISMATCH": Conflict,
    "CACHE_NOT_NAMED": Conflict,
    "CACHE_MISMATCH": Conflict,
    "CACHE_IN_USE": Conflict,
    "UNKNOWN_SESSION": SessionGone,
    "STALE_SESSION": SessionGone,
    "FIELD_NOT_SERVED": NotServed,
    "UNAUTHENTICATED": Unauthenticated,
    "PERMISSION_DENIED": PermissionDenied,
    "DRAINING": Unavailable,
    "WAIT_TIMEOUT": TimedOut,
    "REVISION_COMPACTED": WatchRefused,
    "REVISION_IN_FUTURE": WatchRefused,
    "EPOCH_CHANGED": WatchRefused,
}

# For errors without a reason, and for reasons of a later daemon.
_BY_CODE: dict[grpc.StatusCode, type[PagodaError]] = {
    grpc.StatusCode.RESOURCE_EXHAUSTED: Exhausted,
    grpc.StatusCode.INVALID_ARGUMENT: BadRequest,
    grpc.StatusCode.NOT_FOUND: NotFound,
    grpc.StatusCode.ALREADY_EXISTS: Conflict,
    grpc.StatusCode.FAILED_PRECONDITION: Conflict,
    grpc.StatusCode.PERMISSION_DENIED: PermissionDenied,
    grpc.StatusCode.UNAUTHENTICATED: Unauthenticated,
    grpc.StatusCode.UNIMPLEMENTED: NotServed,
    grpc.StatusCode.UNAVAILABLE: Unavailable,
    grpc.StatusCode.DEADLINE_EXCEEDED: TimedOut,
}


def _details(code: grpc.StatusCode, status: Any) -> Details:
    """Reads the google.rpc.ErrorInfo and RetryInfo of a google.rpc.Status."""
    info, retry = rpc.ErrorInfo(), rpc.RetryInfo()
    retry_after = None
    for detail in status.details:
        if detail.Is(info.DESCRIPTOR):
            detail.Unpack(info)
        elif detail.Is(retry.DESCRIPTOR):
            detail.Unpack(retry)
            retry_after = retry.retry_delay.seconds + retry.retry_delay.nanos / 1e9
    return Details(code, status.message, info.reason, dict(info.metadata), retry_after)


def make(details: Details) -> PagodaError:
    """Makes the exception of the error's family. For KV_LOST, use KvLost.of, which has more
    data."""
    return _FAMILIES.get(details.reason, _BY_CODE.get(details.code, PagodaError))(details)


def of_result(status: Any) -> Details:
    """The details of an operation's google.rpc.Status."""
    return _details(_CODES.get(status.code, grpc.StatusCode.UNKNOWN), status)


# The codes of a call whose connection broke or whose daemon ended.
_BROKEN = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN,
                     grpc.StatusCode.ABORTED})


def is_broken(error: PagodaError) -> bool:
    """Whether the connection failed or the daemon ended."""
    return error.code in _BROKEN


def was_connected(error: PagodaError) -> bool:
    """Whether a call that waited for a connection got one and failed for another reason, even if
    that connection then broke."""
    return bool(error.reason) or error.code is not grpc.StatusCode.DEADLINE_EXCEEDED


def of_call(error: grpc.RpcError) -> PagodaError:
    """The exception of a failed call, of grpc or of grpc.aio."""
    failed: Any = error
    for key, value in failed.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            return make(_details(failed.code(), rpc.Status.FromString(value)))
    return make(Details(failed.code(), failed.details() or ""))
