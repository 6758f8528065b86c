"""The daemon's map socket, where a client on the same machine gets the pools' memory:
proto/pagoda/v1/mapping.proto."""

import dataclasses
import errno
import os
import socket
import struct
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from pagoda import errors
from pagoda._contract import v1
from pagoda.errors import CannotMap, Details

# The kernel's limit of descriptors in a packet, and more bytes than an answer with that many pools
# needs.
_MAX_DESCRIPTORS = 253
_MAX_ANSWER_BYTES = 1 << 18
# The default timeout in seconds. The daemon answers at once.
_TIMEOUT = 10.0

READ = 1  # pagoda.v1.MapAccess.
READ_WRITE = 2


def _refused(path: str, error: OSError, timeout: float) -> errors.PagodaError:
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return CannotMap(Details(grpc.StatusCode.NOT_FOUND, f"the daemon's map socket {path} is not here: a client maps pools on the "
                                 "daemon's machine, where that path is the same file"))
    if error.errno in (errno.EACCES, errno.EPERM):
        return CannotMap(Details(grpc.StatusCode.PERMISSION_DENIED, f"map socket {path}: {os.strerror(error.errno)}; the user must be in "
                                 "the socket's group"))
    if isinstance(error, TimeoutError):
        return errors.make(Details(grpc.StatusCode.DEADLINE_EXCEEDED, f"map socket {path}: no answer in {timeout:g} s"))
    return errors.make(Details(grpc.StatusCode.UNAVAILABLE, f"map socket {path}: {error}"))


def _ask(path: str, request: Any, timeout: float) -> tuple[Any, list[int]]:
    """Returns the MapPoolsResponse and the descriptors. The caller closes them."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.settimeout(timeout)
        try:
            connection.connect(path)
            connection.send(request.SerializeToString())
            packet, descriptors, flags, _ = socket.recv_fds(connection, _MAX_ANSWER_BYTES, _MAX_DESCRIPTORS, socket.MSG_CMSG_CLOEXEC)
        except OSError as error:
            raise _refused(path, error, timeout) from None
    if not packet or flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
        _close(descriptors)
        what = "the daemon hung up" if not packet else "this process cannot open enough files for all pools; raise its limit (ulimit -n)"
        raise errors.make(Details(grpc.StatusCode.UNAVAILABLE, f"map socket {path}: {what}"))
    try:
        return v1.MapPoolsResponse.FromString(packet), descriptors
    except DecodeError:
        _close(descriptors)
        raise errors.make(Details(grpc.StatusCode.INTERNAL, f"map socket {path}: not a MapPoolsResponse")) from None


def _close(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


# The layout of SessionRef.to_bytes: a version, the id, the token's halves. The path follows.
_REF = struct.Struct("<BQQQ")
_REF_VERSION = 1


@dataclasses.dataclass(frozen=True)
class SessionRef:
    """Names a session to other processes on its machine, so that they can map its pools
    (map_pools). For example, an engine's workers map under the session of the engine's scheduler.
    It can be pickled, or sent as bytes.

    It is a credential: a process that has it can read and write the session's memory. It is valid
    until the session ends.
    """

    session_id: int
    token: tuple[int, int] = dataclasses.field(repr=False)
    """The secret's 128 bits, the lower 64 first."""
    map_socket: str
    """The path of the daemon's map socket; "" if it has none."""

    def to_bytes(self) -> bytes:
        """The bytes for from_bytes in another process. They include the secret."""
        return _REF.pack(_REF_VERSION, self.session_id, *self.token) + os.fsencode(self.map_socket)

    @classmethod
    def from_bytes(cls, given: bytes) -> "SessionRef":
        """Errors: ValueError for bytes that to_bytes did not make."""
        if len(given) < _REF.size or given[0] != _REF_VERSION:
            raise ValueError(f"the {len(given)} bytes are not a SessionRef of version {_REF_VERSION}")
        _, session_id, low, high = _REF.unpack_from(given)
        return cls(session_id, (low, high), os.fsdecode(given[_REF.size:]))

    @classmethod
    def take(cls, opened: Any) -> "SessionRef":
        """From an OpenSessionResponse."""
        return cls(opened.session.session_id, (opened.session.token, opened.session.token_high), opened.map_socket)

    def _message(self) -> Any:
        return v1.SessionRef(session_id=self.session_id, token=self.token[0], token_high=self.token[1])


class MapSocket:
    """Gets a session's descriptors. Thread-safe: each request has its own connection."""

    def __init__(self, session: SessionRef, *, timeout: float = _TIMEOUT) -> None:
        """`timeout`: seconds to wait for each answer."""
        self._session = session
        self._timeout = timeout

    def describe(self) -> list[Any]:
        """Returns the PoolMappings of the session's cache. The daemon records no writer for this
        call. Errors: those of open."""
        response, descriptors = self._request(READ)
        _close(descriptors)
        return list(response.pools)

    def open(self, window_size: int, pool_index: int, tier: int, access: int) -> int:
        """Returns a descriptor of the pool's first segment, for reading or also for writing. The
        caller closes it. With READ_WRITE, the daemon records this process as a writer of the
        session.

        Errors: CannotMap; UNKNOWN_SESSION, STALE_SESSION, DRAINING.
        """
        response, descriptors = self._request(access)
        try:
            position = 0
            for pool in response.pools:
                if (pool.window_size, pool.pool_index, pool.tier) == (window_size, pool_index, tier):
                    return descriptors.pop(position)
                position += len(pool.segments)
            raise errors.make(Details(grpc.StatusCode.NOT_FOUND, f"the daemon has no pool {pool_index} of window {window_size} any more"))
        finally:
            _close(descriptors)

    def open_rings(self, wanted_bytes: int, timeout: float) -> tuple[Any, list[int]]:
        """Returns a RingPair and its descriptors: the memory, and the socket that wakes the sides.
        The caller closes them. Errors: those of open; NotServed (the daemon has no rings)."""
        response, descriptors = self._ask(v1.MapPoolsRequest(session=self._session._message(), rings={"bytes": wanted_bytes}), timeout)
        if not response.HasField("rings"):
            _close(descriptors)
            raise errors.NotServed(Details(grpc.StatusCode.UNIMPLEMENTED, "the daemon has no rings"))
        return response.rings, descriptors

    def _request(self, access: int) -> tuple[Any, list[int]]:
        return self._ask(v1.MapPoolsRequest(session=self._session._message(), access=access), self._timeout)

    def _ask(self, request: Any, timeout: float) -> tuple[Any, list[int]]:
        """Returns an answer without an error, and its descriptors. The caller closes them."""
        if not self._session.map_socket:
            raise CannotMap(Details(grpc.StatusCode.FAILED_PRECONDITION,
                                    "the daemon has no map socket (server.map_socket), so its memory cannot be mapped"))
        response, descriptors = _ask(self._session.map_socket, request, timeout)
        if response.HasField("error"):
            _close(descriptors)
            raise errors.make(errors.of_result(response.error))
        return response, descriptors
