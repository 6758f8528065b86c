"""A session's signs of life, in the background."""

import threading
from typing import Any

import grpc

from pagoda import errors
from pagoda._contract import Calls, v1
from pagoda.errors import PagodaError, SessionGone


def next_delay(lease: float, error: PagodaError | None) -> float | None:
    """Seconds to the next sign of life after one that went well, or failed with `error`; None where there is no session any more."""
    if isinstance(error, SessionGone):
        return None
    return lease / 3 if error is None else lease / 10


class KeepAlive:
    """A thread that renews a lease of `lease` seconds until it is stopped, or until the session is gone. It knows nothing of the client, so
    that a client that is forgotten goes, and its session with its lease."""

    def __init__(self, calls: Calls, session: Any, lease: float) -> None:
        self.error: PagodaError | None = None
        """Why there is no session any more."""
        self.stopped = threading.Event()
        """Set to stop it."""
        self._keep_alive = calls.keep_alive
        self._request = v1.KeepAliveRequest(session=session)
        self._lease = lease
        self._thread = threading.Thread(target=self._run, name="pagoda-keep-alive", daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Returns when no sign of life will be sent any more."""
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
            # A call that waits for the connection is what makes gRPC mend it: without one nobody works on it.
            self._keep_alive(self._request, timeout=self._lease / 3, wait_for_ready=True)
        except grpc.RpcError as error:
            return errors.of_call(error)
        except ValueError:  # The channel was closed.
            self.stopped.set()
        return None
