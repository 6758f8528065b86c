"""Renews a session's lease in the background."""

import threading
from typing import Any

import grpc

from pagoda import errors
from pagoda._contract import Calls, v1
from pagoda.errors import PagodaError, SessionGone


def next_delay(lease: float, error: PagodaError | None) -> float | None:
    """Seconds to the next keep-alive call, after a successful one or one that failed with `error`.
    None if the session is over."""
    if isinstance(error, SessionGone):
        return None
    return lease / 3 if error is None else lease / 10


class KeepAlive:
    """A thread that renews a lease of `lease` seconds until it is stopped or the session is over.
    It holds no reference to the client, so a client that is no longer referenced is collected, and
    its session ends with its lease."""

    def __init__(self, calls: Calls, session: Any, lease: float) -> None:
        self.error: PagodaError | None = None
        """The error that ended the session."""
        self.stopped = threading.Event()
        """Set it to stop the thread."""
        self._keep_alive = calls.keep_alive
        self._request = v1.KeepAliveRequest(session=session)
        self._lease = lease
        self._thread = threading.Thread(target=self._run, name="pagoda-keep-alive", daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Returns when the thread has ended."""
        self._thread.join()

    def _run(self) -> None:
        delay: float | None = self._lease / 3
        while delay is not None and not self.stopped.wait(delay):
            error = self._beat()
            delay = next_delay(self._lease, error)
            if delay is None and not self.stopped.is_set():
                self.error = error

    def _beat(self) -> PagodaError | None:
        try:
            # Only a call that waits for the connection makes gRPC reconnect.
            self._keep_alive(self._request, timeout=self._lease / 3, wait_for_ready=True)
        except grpc.RpcError as error:
            return errors.of_call(error)
        except ValueError:  # The channel was closed.
            self.stopped.set()
        return None
