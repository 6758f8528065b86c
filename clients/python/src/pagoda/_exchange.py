"""The calls that move prefixes between machines. Each function is a method of Client and of
aio.Client, with the same signature and documentation.

A prefix is named as in _operations.py.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import grpc

from pagoda import errors, values
from pagoda._contract import v1
from pagoda._operations import prefix_fields
from pagoda.values import ExportedPrefix, FetchedPrefix, FetchOutcome, Keys, Namespace, Tokens

R = TypeVar("R")


@dataclasses.dataclass(frozen=True)
class Question(Generic[R]):
    """A call of its own, outside the batches."""

    method: str
    """The name in Calls."""
    request: Callable[[Any, float], Any]
    """Builds the request from the session's reference and the client's timeout."""
    seconds: Callable[[float], float]
    """From the client's timeout: how long to wait for the answer."""
    take: Callable[[Any], R]


class PendingCall(Generic[R]):
    """A call whose answer comes later. Thread-safe."""

    def __init__(self, future: Any, take: Callable[[Any], R]) -> None:
        self._future = future
        self._take = take

    def done(self) -> bool:
        """Whether the call has ended, with an answer or an error. Does not block."""
        return bool(self._future.done())

    def result(self, timeout: float | None = None) -> R:
        """Returns the answer or raises the call's error.

        `timeout`: seconds to wait for the end of the call; None: until it ends.
        Errors: those of the call; Unavailable if it was cancelled; TimedOut: it has not ended yet.
        """
        try:
            return self._take(self._future.result(timeout))
        except grpc.FutureTimeoutError:
            raise errors.TimedOut(errors.Details(grpc.StatusCode.DEADLINE_EXCEEDED, "the call has not ended yet")) from None
        except grpc.FutureCancelledError:
            raise errors.Unavailable(errors.Details(grpc.StatusCode.CANCELLED, "the call was cancelled")) from None
        except grpc.RpcError as error:
            raise errors.of_call(error) from None

    def cancel(self) -> None:
        """Gives the call up. What the daemon has begun, it may still finish. Does not block."""
        self._future.cancel()


def fetch_prefix(tokens: Tokens = (), *, source: str | None = None, deadline: float | None = None, namespace: Namespace | None = None,
                 extra_token_ids: Tokens = (), multimodal_items: Sequence[values.MultimodalItem] = (),
                 keys: Keys = ()) -> Question[FetchedPrefix]:
    """Brings a prefix into memory from where it lies: a disk tier of the cache, the daemon's store,
    or another daemon. Waits until the fetch has ended. Whatever a store or another daemon does, it
    is no error: `outcome` of the result says what happened. The blocks are not held.

    `source`: "HOST:PORT", the peer address of another daemon; None: the daemon's store. `deadline`:
    seconds that the fetch may take; what has arrived by then stays. Default: the client's timeout.
    The daemon's configuration (`fetch`) limits it too. The answer may take `deadline` and the
    client's timeout. `keys`: instead of tokens, see Namespace.keyed.
    Errors: INVALID_COUNT (no tokens and no keys), KEYS_AND_TOKENS, INVALID_KEY, INVALID_ARGUMENT (a
    bad address), PERMISSION_DENIED (the daemon's peers.sources does not allow this source).
    """
    named = prefix_fields(namespace, extra_token_ids, multimodal_items, keys) | {"tokens": values.token_list(tokens)}
    if deadline is not None:
        values.milliseconds(deadline)  # Refuses it before the call.

    def request(session: Any, timeout: float) -> Any:
        made = v1.FetchPrefixRequest(session=session, deadline_ms=values.milliseconds(timeout if deadline is None else deadline), **named)
        if source:
            made.source.address = source
        return made

    return Question("fetch_prefix", request, lambda timeout: timeout + (timeout if deadline is None else deadline),
                    lambda done: FetchedPrefix(FetchOutcome(done.outcome), done.matched_tokens, done.fetched_tokens))


def export_prefix(tokens: Tokens = (), *, lease: float | None = None, to_store: bool = False, timeout: float | None = None,
                  namespace: Namespace | None = None, extra_token_ids: Tokens = (),
                  multimodal_items: Sequence[values.MultimodalItem] = (), keys: Keys = ()) -> Question[ExportedPrefix]:
    """Hands a prefix over to another daemon: pins its cached blocks, and tells where the other
    daemon fetches them: fetch_prefix with the result's `source`.

    `lease`: seconds until the pin ends, as in Client.pin; client.unpin(exported.pin_id) ends it
    earlier. `to_store`: also writes the blocks into the daemon's store, and waits for that.
    `timeout`: seconds to wait for the answer; default: the client's. Without an answer, the pin
    may exist. `keys`: instead of tokens, see Namespace.keyed.
    Errors: those of Client.pin; PERMISSION_DENIED (`to_store`: the daemon does not let this
    tenant's blocks into the store).
    """
    named = prefix_fields(namespace, extra_token_ids, multimodal_items, keys) | {"tokens": values.token_list(tokens)}
    lease_ms = values.optional_milliseconds(lease)
    return Question("export_prefix", lambda session, _: v1.ExportPrefixRequest(session=session, lease_ms=lease_ms, to_store=to_store, **named),
                    lambda usual: usual if timeout is None else timeout,
                    lambda done: ExportedPrefix(done.source.address, done.exported_tokens, done.stored_tokens, done.pin_id))
