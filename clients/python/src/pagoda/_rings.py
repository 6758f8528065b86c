"""Batches through shared memory, for a client on the daemon's machine. The daemon hands out a pair
of rings on its map socket: proto/pagoda/v1/mapping.proto. wire/ring/ describes the memory."""

from __future__ import annotations

import os
import threading
import time
from typing import Any

import grpc

from pagoda import errors
from pagoda._contract import read_answer
from pagoda._extension import native
from pagoda._map_socket import MapSocket, SessionRef
from pagoda._wire import BatchRequest
from pagoda.errors import CannotMap, Details, PagodaError, TimedOut

# Bytes of each ring that a client asks for. Pages that no message reaches take no memory.
_RING_BYTES = 1 << 20
# Seconds for the map socket, which answers at once, and between two attempts to replace a pair.
_OPEN_SECONDS = 1.0
_PAUSE = 1.0

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
    the transport "ring".

    `is_local`: whether the endpoint is a Unix socket.
    Errors, for the transport "ring": CannotMap (there is no extension, or the daemon has no rings),
    and those of the map socket.
    """
    if transport == "grpc" or transport == "auto" and not (native is not None and is_local and session.map_socket):
        return None
    rings = Rings(session)
    try:
        rings.open()
    except PagodaError:
        if transport == "ring":
            raise
        return None
    return rings


class Rings:
    """The rings of one session. Thread-safe. A forked child sends nothing through them."""

    def __init__(self, session: SessionRef) -> None:
        """They are not open yet."""
        self._map_socket = MapSocket(session, timeout=_OPEN_SECONDS)
        self._owner = os.getpid()
        self._ring: Any = None
        self._closed = False
        self._next_attempt = 0.0
        self._lock = threading.Lock()

    def open(self) -> None:
        """Gets a pair from the daemon, which ends the session's earlier pair. Errors: CannotMap;
        those of the map socket."""
        if native is None:
            raise _cannot("the package has no native extension here")
        pair, descriptors = self._map_socket.open_rings(_RING_BYTES)
        try:
            self._ring = native.Ring(*descriptors, pair.version, pair.bytes)
        except (OSError, TypeError, ValueError) as error:
            raise _cannot(str(error)) from None
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def execute(self, request: BatchRequest, timeout: float) -> Any:
        """The answer to a batch. None: send it over gRPC, where it runs if it did not run here: its
        retry_id tells the daemon. Errors: TimedOut.

        REQUIRES: the batch has a retry_id, and waits for nothing.
        """
        ring = self._ring
        if not ring.is_open and (ring := self._reopened()) is None:
            return None
        answer = ring.call(request.SerializeToString(), timeout)
        if isinstance(answer, bytes):
            return read_answer(answer)
        if answer == native.TIMEOUT:
            raise TimedOut(Details(grpc.StatusCode.DEADLINE_EXCEEDED, f"no answer in {timeout:g} s"))
        return None

    def close(self) -> None:
        """Ends the pair when no call uses it any more. Later batches go over gRPC."""
        with self._lock:
            self._closed = True
        self._ring.close()

    def _reopened(self) -> Any:
        """The daemon ends a pair with each batch that is refused as a whole, for example. Returns a
        new pair; None if there is none now."""
        with self._lock:
            if self._ring.is_open:
                return self._ring
            if self._closed or os.getpid() != self._owner or time.monotonic() < self._next_attempt:
                return None
            self._next_attempt = time.monotonic() + _PAUSE
            try:
                self.open()
            except PagodaError:
                return None
            return self._ring


def _cannot(why: str) -> CannotMap:
    return CannotMap(Details(grpc.StatusCode.FAILED_PRECONDITION, f"no rings: {why}"))
