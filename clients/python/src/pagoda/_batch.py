"""The operations of a batch, recorded before they are sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

import grpc

from pagoda import _operations, _sequences
from pagoda._call import Call, Pending, present
from pagoda._session import waits_in
from pagoda.errors import PagodaError, TimedOut

P = ParamSpec("P")
R = TypeVar("R")

# The most seconds that the daemon spends on the waits of one batch.
MAX_WAIT = 5.0


def was_cut_short(error: PagodaError) -> bool:
    """Whether a wait in the daemon ended before its copies and can be repeated: the time limit of
    one batch was over, or the connection broke."""
    return isinstance(error, TimedOut) or error.code is grpc.StatusCode.CANCELLED


def _recorded(build: Callable[P, Call[R]]) -> Callable[Concatenate[Recorder, P], Pending[R]]:
    def method(self: Recorder, /, *args: P.args, **kwargs: P.kwargs) -> Pending[R]:
        return self._record(build(*args, **kwargs))

    present(method, build)
    return method


class Recorder:
    """Records operations in the order in which they will run. Each method has the name of the
    client's, or of its first argument's. It sends nothing. The Pending that it returns has the
    outcome after the batch has run."""

    def __init__(self, timeout: float) -> None:
        self._pending: list[Pending[Any]] = []
        self._sent = False
        self._timeout = timeout

    def _record(self, call: Call[R]) -> Pending[R]:
        if self._sent:
            raise RuntimeError("the batch has been sent")
        pending = Pending(call)
        self._pending.append(pending)
        return pending

    def _seal(self) -> tuple[list[Pending[Any]], float]:
        """Ends the recording. Returns the operations and the seconds that they may take."""
        if self._sent:
            raise RuntimeError("the batch has been sent")
        self._sent = True
        return self._pending, self._timeout + (MAX_WAIT if waits_in(self._pending) else 0.0)

    def __len__(self) -> int:
        return len(self._pending)

    allocate_blocks = _recorded(_operations.allocate_blocks)
    free_blocks = _recorded(_operations.free_blocks)
    fill_blocks = _recorded(_operations.fill_blocks)
    describe_blocks = _recorded(_operations.describe_blocks)
    match = _recorded(_operations.match)
    query_capacity = _recorded(_operations.query_capacity)
    offload = _recorded(_operations.offload)
    prefetch = _recorded(_operations.prefetch)
    pin = _recorded(_operations.pin)
    unpin = _recorded(_operations.unpin)
    list_pins = _recorded(_operations.list_pins)
    invalidate = _recorded(_operations.invalidate)
    set_retention = _recorded(_operations.set_retention)
    pools = _recorded(_operations.pools)
    wait_for_ticket = _recorded(_operations.wait_for_ticket)

    append = _recorded(_sequences.append)
    append_step = _recorded(_sequences.append_step)
    reserve = _recorded(_sequences.reserve)
    commit = _recorded(_sequences.commit)
    truncate = _recorded(_sequences.truncate)
    describe = _recorded(_sequences.describe)
    free = _recorded(_sequences.free)
