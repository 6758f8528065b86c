"""Batches through shared memory, for a client on the daemon's machine. The daemon hands out a pair
of rings on its map socket: proto/pagoda/v1/mapping.proto. wire/ring/ describes the memory."""

from __future__ import annotations

import math
import os
import threading
import time
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from pagoda import errors
from pagoda._contract import rpc, v1
from pagoda._extension import native
from pagoda._map_socket import MapSocket, SessionRef
from pagoda._wire import BatchRequest
from pagoda.errors import CannotMap, Details, PagodaError, TimedOut

# Bytes of each ring that a client asks for. Pages that no message reaches take no memory.
_RING_BYTES = 1 << 20
# Seconds to wait for the map socket, which answers at once: if rings must be had, and if not.
_MUST_SECONDS = 10.0
_MAY_SECONDS = 0.1
# Seconds between two attempts to get a pair: each failed one doubles them, up to _MOST_PAUSE.
_PAUSE = 1.0
_MOST_PAUSE = 60.0
# The codes of an answer that stays the same: this daemon or this client has no rings, or the two
# know different versions.
_FINAL = (grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.FAILED_PRECONDITION)

TRANSPORTS = ("auto", "grpc", "ring")


def choose(transport: str | None) -> str:
    """`transport`, else the environment's PAGODA_TRANSPORT, else "auto". ValueError: it is none of
    TRANSPORTS."""
    chosen = transport or os.environ.get("PAGODA_TRANSPORT") or "auto"
    if chosen not in TRANSPORTS:
        raise ValueError(f"unknown transport {chosen!r}; the transports are {', '.join(TRANSPORTS)}")
    return chosen


def open_rings(transport: str, session: SessionRef, *, is_local: bool) -> Rings | None:
    """The rings of a new session. None: batches go over gRPC. Nothing is wrong then, except with
    the transport "ring". With "auto" they are perhaps not open yet: the daemon was busy, for
    example. A later batch then asks again.

    `is_local`: whether the endpoint is a Unix socket.
    Errors, for the transport "ring": CannotMap (there is no extension, or the daemon has no rings),
    and those of the map socket.
    """
    if transport == "grpc" or transport == "auto" and not (native is not None and is_local and session.map_socket):
        return None
    rings = Rings(session)
    try:
        rings.open(_MUST_SECONDS if transport == "ring" else _MAY_SECONDS)
    except PagodaError as error:
        if transport == "ring":
            raise
        if error.code in _FINAL:
            return None
        rings.ask_later(error)
    return rings


class Rings:
    """The rings of one session. Thread-safe. A forked child sends nothing through them."""

    def __init__(self, session: SessionRef) -> None:
        """They are not open yet."""
        self._map_socket = MapSocket(session)
        self._owner = os.getpid()
        self._ring: Any = None
        self._closed = False
        self._opening = False  # A thread asks for a new pair.
        self._next_attempt = 0.0
        self._pause = _PAUSE
        self._lock = threading.Lock()  # No thread waits for the daemon while it holds this lock.

    def open(self, timeout: float) -> None:
        """Gets a pair from the daemon, which ends the session's earlier pair. `timeout`: seconds
        for each step of the exchange. Errors: CannotMap; those of the map socket."""
        if native is None:
            raise _cannot("the package has no native extension here")
        pair, descriptors = self._map_socket.open_rings(_RING_BYTES, timeout)
        try:
            ring = native.Ring(*descriptors, pair.version, pair.bytes)
        except OSError as error:
            raise _cannot(str(error), grpc.StatusCode.UNAVAILABLE) from None
        except (TypeError, ValueError) as error:
            raise _cannot(str(error)) from None
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        with self._lock:
            self._ring = ring
            self._pause = _PAUSE
            if self._closed:
                ring.close()

    def ask_later(self, error: PagodaError) -> None:
        """After a failed open: a batch asks again after a pause, or never if the daemon's answer
        stays the same."""
        with self._lock:
            self._next_attempt = math.inf if error.code in _FINAL else time.monotonic() + self._pause
            self._pause = min(2 * self._pause, _MOST_PAUSE)

    def execute(self, request: BatchRequest, timeout: float, deadline: float | None = None) -> Any:
        """The answer to a batch. None: send it over gRPC, where it runs if it did not run here: its
        retry_id tells the daemon.

        `timeout`: the caller's, in seconds. `deadline`: its end, by time.monotonic (default:
        `timeout` from now).
        Errors: TimedOut; those by which the daemon refuses a batch as a whole.

        REQUIRES: the batch has a retry_id, and waits for nothing.
        """
        if deadline is None:
            deadline = time.monotonic() + timeout
        ring = self._ring
        if (ring is None or not ring.is_open) and (ring := self._reopened()) is None:
            return None
        answer = ring.call(request.SerializeToString(), deadline - time.monotonic())
        try:
            if isinstance(answer, bytes):
                return v1.SessionResponse.FromString(answer)
            status = rpc.Status.FromString(answer[0]) if isinstance(answer, tuple) else None
        except DecodeError:  # The daemon is out of order.
            ring.close()
            return None
        if status is not None:
            refusal = errors.make(errors.of_result(status))
            if errors.is_broken(refusal) and not refusal.reason:
                return None
            raise refusal
        if answer == native.TIMEOUT:
            raise TimedOut(Details(grpc.StatusCode.DEADLINE_EXCEEDED, f"no answer in {timeout:g} s"))
        return None

    def close(self) -> None:
        """Ends the pair when no call uses it any more. Later batches go over gRPC."""
        with self._lock:
            self._closed = True
            if self._ring is not None:
                self._ring.close()

    def _reopened(self) -> Any:
        """Returns a new pair; None if there is none now, or another thread asks for it."""
        with self._lock:
            if self._ring is not None and self._ring.is_open:
                return self._ring
            if self._closed or self._opening or os.getpid() != self._owner or time.monotonic() < self._next_attempt:
                return None
            self._next_attempt = time.monotonic() + _PAUSE
            self._opening = True
        try:
            self.open(_MAY_SECONDS)
        except PagodaError as error:
            self.ask_later(error)
            return None
        finally:
            self._opening = False
        return self._ring


def _cannot(why: str, code: grpc.StatusCode = grpc.StatusCode.FAILED_PRECONDITION) -> CannotMap:
    return CannotMap(Details(code, f"no rings: {why}"))
