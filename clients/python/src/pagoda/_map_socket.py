"""The daemon's map socket, where a client on its machine gets the pools' memory: proto/pagoda/v1/mapping.proto."""

import errno
import os
import socket
from typing import Any

import grpc

from pagoda import errors
from pagoda._contract import v1
from pagoda.errors import CannotMap, Details

# What one packet carries: the kernel's bound of descriptors, and more bytes than so many pools need.
_MAX_DESCRIPTORS = 253
_MAX_ANSWER_BYTES = 1 << 18
# Seconds to wait for an answer that the daemon has ready.
_TIMEOUT = 10.0

READ = 1  # pagoda.v1.MapAccess.
READ_WRITE = 2


def _refused(path: str, error: OSError) -> errors.PagodaError:
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return CannotMap(Details(grpc.StatusCode.NOT_FOUND, f"the daemon's map socket {path} is not here: a client maps pools on the "
                                 "daemon's machine, where that path is the same file"))
    if error.errno in (errno.EACCES, errno.EPERM):
        return CannotMap(Details(grpc.StatusCode.PERMISSION_DENIED, f"map socket {path}: {os.strerror(error.errno)}; whoever maps is of "
                                 "the socket's group"))
    if isinstance(error, TimeoutError):
        return errors.make(Details(grpc.StatusCode.DEADLINE_EXCEEDED, f"map socket {path}: no answer in {_TIMEOUT:g} s"))
    return errors.make(Details(grpc.StatusCode.UNAVAILABLE, f"map socket {path}: {error}"))


def _ask(path: str, request: Any) -> tuple[Any, list[int]]:
    """The MapPoolsResponse and the descriptors, which the caller closes."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.settimeout(_TIMEOUT)
        try:
            connection.connect(path)
            connection.send(request.SerializeToString())
            packet, descriptors, flags, _ = socket.recv_fds(connection, _MAX_ANSWER_BYTES, _MAX_DESCRIPTORS, socket.MSG_CMSG_CLOEXEC)
        except OSError as error:
            raise _refused(path, error) from None
    if not packet or flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
        _close(descriptors)
        what = "the daemon hung up" if not packet else "this process may not open as many files as there are pools"
        raise errors.make(Details(grpc.StatusCode.UNAVAILABLE, f"map socket {path}: {what}"))
    return v1.MapPoolsResponse.FromString(packet), descriptors


def _close(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


class MapSocket:
    """Where a session gets its descriptors. Thread-safe: each request has a connection of its own."""

    def __init__(self, path: str, session: Any) -> None:
        self._path = path
        self._session = session

    def open(self, window_size: int, pool_index: int, tier: int, access: int) -> int:
        """A descriptor of the pool's first segment, for reading or for writing as well; the caller closes it. Whoever asks for writing is
        remembered as a writer of the session.

        Errors: CannotMap; UNKNOWN_SESSION, STALE_SESSION, DRAINING.
        """
        if not self._path:
            raise CannotMap(Details(grpc.StatusCode.FAILED_PRECONDITION,
                                    "the daemon has no map socket (server.map_socket), so its pools cannot be mapped"))
        response, descriptors = _ask(self._path, v1.MapPoolsRequest(session=self._session, access=access))
        try:
            if response.HasField("error"):
                raise errors.make(errors.of_result(response.error))
            position = 0
            for pool in response.pools:
                if (pool.window_size, pool.pool_index, pool.tier) == (window_size, pool_index, tier):
                    return descriptors.pop(position)
                position += len(pool.segments)
            raise errors.make(Details(grpc.StatusCode.NOT_FOUND, f"the daemon has no pool {pool_index} of window {window_size} any more"))
        finally:
            _close(descriptors)
