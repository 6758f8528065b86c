"""A session with a daemon that can go away and come back. The engine must notice no more than a
miss."""

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
    """Keeps a session open. `client` is the session, or None while the daemon is gone, slow or
    refuses it.

    Nothing here raises because a daemon does not answer. If a call on `client` fails, the caller
    calls `lost`. From then on `client` is None, so no later call waits for the same daemon. A
    thread of this object opens a new session as soon as it can. A new session is another Client
    object: the caller has lost the sequences of the old one.

    A lost session is not closed at once. Workers may still write to its slots, and closing it would
    make the slots free for others. After `forget` it is closed as soon as a daemon answers. That
    also matters after a restart: the new daemon quarantines the blocks that sessions of the dead
    one could write, until these sessions are closed or their processes have ended. Thread-safe.
    """

    def __init__(self, connect: Callable[[], Client], *, name: str, retry: float = RETRY_SECONDS) -> None:
        """`connect` opens the session. If it cannot, it raises PagodaError or ValueError. It must
        return within the time that an engine can lose. `name`: for the log. `retry`: seconds
        between two attempts."""
        self._connect = connect
        self._name = name
        self._retry = retry
        self._changed = threading.Condition()
        self._client: Client | None = None
        self._lost: list[Client] = []  # Workers may still write to their slots.
        self._closing: list[Client] = []
        self._resets = 0  # Resets that are still to be done.
        self._complaint = ""
        self._closed = False
        self._losses = 0
        self._thread = threading.Thread(target=self._run, name=f"pagoda-link-{name}", daemon=True)
        self._thread.start()

    @property
    def name(self) -> str:
        return self._name

    @property
    def client(self) -> Client | None:
        """The session; None if there is none now. Costs nothing."""
        client = self._client
        if client is not None and client.session_error is not None:
            self.lost(client, client.session_error)
            return None
        return client

    @property
    def lost_clients(self) -> list[Client]:
        """Sessions that are lost and not forgotten."""
        return self._lost

    def wait(self, seconds: float) -> bool:
        """Waits at most `seconds` until there is a session. Returns whether there is one."""
        with self._changed:
            self._changed.wait_for(lambda: self._client is not None or self._closed, seconds)
            return self._client is not None

    def lost(self, client: Client, error: Exception) -> None:
        """A call on `client` failed in a way in which later calls would also fail. Does not
        block."""
        with self._changed:
            if self._client is not client:
                return
            self._client = None
            self._lost = [*self._lost, client]
            self._losses += 1
            self._changed.notify_all()
        log.warning("%s: the session is lost; continuing without cached KV: %s", self._name, error)

    def forget(self, client: Client) -> None:
        """No worker uses the slots of this lost session any more. It is closed in the
        background."""
        with self._changed:
            self._lost = [one for one in self._lost if one is not client]
            self._closing.append(client)
            self._changed.notify_all()

    def reset_when_back(self) -> Client | None:
        """The next session begins with an empty cache. If there is a session by now, returns it:
        the caller must then reset it."""
        with self._changed:
            if self._client is None:
                self._resets += 1
            return self._client

    def take_losses(self) -> int:
        """Returns how often a session was lost since the last call."""
        with self._changed:
            losses, self._losses = self._losses, 0
            return losses

    def close(self) -> None:
        """Ends all sessions. Waits for running calls."""
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
            _ = self.client  # Notices a session that ended while the engine was idle.
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
        """Returns false if a reset must come first."""
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
        """Does the pending resets. Returns None if there is no session after all."""
        with self._changed:
            due = self._resets
        try:
            client.reset_prefix_cache(timeout=RESET_SECONDS)
        except (Unavailable, TimedOut, SessionGone) as error:
            self._complain(error)
            self._end(client, 0.0)
            return None
        except Exception as error:  # The reset is refused, and would be refused each time.
            log.error("%s: the cache was not reset and may still hold KV that the reset should remove: %s", self._name, error)
        with self._changed:
            self._resets -= due
        return client

    def _complain(self, error: Exception) -> None:
        if str(error) != self._complaint:  # Log it once, not with each attempt.
            self._complaint = str(error)
            log.warning("%s: no session: %s: %s", self._name, type(error).__name__, error)

    def _end(self, client: Client, seconds: float) -> None:
        try:
            if seconds:
                # Its connection may still wait for its next attempt.
                client._connected_within(seconds)
            client.close()
        except PagodaError:
            pass
        except Exception:
            log.exception("%s: closing a session failed", self._name)

    def _try_once(self) -> Client | None:
        try:
            return self._connect()
        # The thread must go on after any error: nothing else looks for the daemon.
        except Exception as error:
            self._complain(error)
            return None
