"""A session with a daemon that may go away and come back. An engine must not notice more than a miss."""

import logging
import threading
from collections.abc import Callable

from pagoda.client import Client
from pagoda.errors import PagodaError, SessionGone, TimedOut, Unavailable

log = logging.getLogger("pagoda.connector")

RETRY_SECONDS = 0.5
RESET_SECONDS = 30.0
CLOSE_SECONDS = 5.0


class Link:
    """Keeps a session open. `client` is the session, or None while the daemon is gone, slow or refuses it.

    Nothing here raises for a daemon that does not answer. A caller that gets an error from `client` calls
    `lost`. From then on `client` is None, so no later call waits for the same daemon, and a thread of this
    object opens a new session as soon as it can. A new session is another Client object: the sequences of
    the old one are gone for the caller.

    A lost session is not closed at once, because workers may still write to its slots, and closing gives
    them to others. After `forget` it is closed, as soon as there is a daemon. That matters after a restart,
    too: the next daemon keeps back what the sessions of the dead one could write, until they are closed or
    their processes have ended. Thread-safe.
    """

    def __init__(self, connect: Callable[[], Client], *, name: str, retry: float = RETRY_SECONDS) -> None:
        """`connect` opens the session; it raises PagodaError or ValueError where it cannot, and returns
        within the time that an engine may lose. `name`: for the log. `retry`: seconds between two tries."""
        self._connect = connect
        self._name = name
        self._retry = retry
        self._changed = threading.Condition()
        self._client: Client | None = None
        self._lost: list[Client] = []  # Workers may still write to their slots.
        self._closing: list[Client] = []
        self._resets = 0  # How many are still to be done.
        self._complaint = ""
        self._closed = False
        self._losses = 0
        self._thread = threading.Thread(target=self._run, name=f"pagoda-link-{name}", daemon=True)
        self._thread.start()

    @property
    def client(self) -> Client | None:
        """The session; None where there is none now. Costs nothing."""
        client = self._client
        if client is not None and client.session_error is not None:
            self.lost(client, client.session_error)
            return None
        return client

    @property
    def lost_clients(self) -> list[Client]:
        """Sessions that were lost and not forgotten."""
        return self._lost

    def wait(self, seconds: float) -> bool:
        """Waits until there is a session, at most for so long. Whether there is one."""
        with self._changed:
            self._changed.wait_for(lambda: self._client is not None or self._closed, seconds)
            return self._client is not None

    def lost(self, client: Client, error: Exception) -> None:
        """A call on `client` failed in a way that a later one would, too. Does not block."""
        with self._changed:
            if self._client is not client:
                return
            self._client = None
            self._lost = [*self._lost, client]
            self._losses += 1
            self._changed.notify_all()
        log.warning("%s: the session is lost, going on without cached KV: %s", self._name, error)

    def forget(self, client: Client) -> None:
        """No worker uses the slots of this lost session any more: it is closed, behind the caller's back."""
        with self._changed:
            self._lost = [one for one in self._lost if one is not client]
            self._closing.append(client)
            self._changed.notify_all()

    def reset_when_back(self) -> Client | None:
        """The next session begins with an empty cache. The session, where there is one by now: then the caller has to reset it."""
        with self._changed:
            if self._client is None:
                self._resets += 1
            return self._client

    def take_losses(self) -> int:
        """How often a session was lost since the last look."""
        with self._changed:
            losses, self._losses = self._losses, 0
            return losses

    def close(self) -> None:
        """Ends all sessions. Blocks until the calls have ended."""
        with self._changed:
            self._closed = True
            self._closing += self._lost
            if self._client is not None:
                self._closing.append(self._client)
            self._client, self._lost = None, []
            self._changed.notify_all()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._client is None or self._closing or self._closed, self._retry)
            _ = self.client  # Has it ended while nobody asked?
            with self._changed:
                closed, connected = self._closed, self._client is not None
                closing: list[Client] = []
                if connected or closed:
                    closing, self._closing = self._closing, []
            for client in closing:
                self._end(client, CLOSE_SECONDS if connected else 0.0)
            if closed:
                return
            if connected:
                continue
            client = self._try_once()
            while client is not None and not self._publish(client):
                client = self._reset(client)
            if client is None:
                with self._changed:
                    self._changed.wait_for(lambda: self._closed, self._retry)

    def _publish(self, client: Client) -> bool:
        """False: a reset comes first."""
        with self._changed:
            if self._closed:
                self._closing.append(client)
            elif self._resets:
                return False
            else:
                self._client = client
                self._changed.notify_all()
        if self._client is client:
            self._complaint = ""
            log.info("%s: a session in cache %s", self._name, client.cache.name)
        return True

    def _reset(self, client: Client) -> Client | None:
        """Does the resets that are due. None: there is no session after all."""
        with self._changed:
            due = self._resets
        try:
            client.reset_prefix_cache(timeout=RESET_SECONDS)
        except (Unavailable, TimedOut, SessionGone) as error:
            self._complain(error)
            self._end(client, 0.0)
            return None
        except Exception as error:  # It is refused, and would be each time.
            log.error("%s: the cache is not reset, and may hold what a reset was to forget: %s", self._name, error)
        with self._changed:
            self._resets -= due
        return client

    def _complain(self, error: Exception) -> None:
        if str(error) != self._complaint:  # Once, and not twice a second.
            self._complaint = str(error)
            log.warning("%s: no session: %s: %s", self._name, type(error).__name__, error)

    def _end(self, client: Client, seconds: float) -> None:
        try:
            if seconds:
                client._connected_within(seconds)  # Its own connection may still wait for its next try.
            client.close()
        except PagodaError:
            pass
        except Exception:
            log.exception("%s: closing a session failed", self._name)

    def _try_once(self) -> Client | None:
        try:
            return self._connect()
        except Exception as error:  # Whatever it is, the thread must go on: nobody else looks for the daemon.
            self._complain(error)
            return None
