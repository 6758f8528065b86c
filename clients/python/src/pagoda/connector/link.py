"""A session with a daemon that may go away and come back. An engine must not notice more than a miss."""

import logging
import threading
from collections.abc import Callable

from pagoda.client import Client
from pagoda.errors import PagodaError

log = logging.getLogger("pagoda.connector")

RETRY_SECONDS = 0.5


class Link:
    """Keeps a session open. `client` is the session, or None while the daemon is gone, slow or refuses it.

    Nothing here raises for a daemon that does not answer. Whoever gets an error from `client` calls `lost`;
    from then on `client` is None, so no later call waits for the same daemon, and a thread of this object
    opens a new session as soon as it can. A new session is another Client object: what belonged to the old
    one is gone. Thread-safe.
    """

    def __init__(self, connect: Callable[[], Client], *, name: str, retry: float = RETRY_SECONDS) -> None:
        """`connect` opens the session; it raises PagodaError or ValueError where it cannot, and returns
        within the time that an engine may lose. `name`: for the log. `retry`: seconds between two tries."""
        self._connect = connect
        self._name = name
        self._retry = retry
        self._changed = threading.Condition()
        self._client: Client | None = None
        self._gone: list[Client] = []  # Sessions that are to be closed.
        self._complaint = ""
        self._closed = False
        self.losses = 0
        """How often a session was lost."""
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

    def wait(self, seconds: float) -> bool:
        """Waits until there is a session, at most for so long. Whether there is one."""
        with self._changed:
            self._changed.wait_for(lambda: self._client is not None or self._closed, seconds)
            return self._client is not None

    def lost(self, client: Client, error: Exception) -> None:
        """Says that a call on `client` failed in a way that a later one would, too. Does not block."""
        with self._changed:
            if self._client is not client:
                return
            self._client = None
            self._gone.append(client)
            self.losses += 1
            self._changed.notify_all()
        log.warning("%s: the session is lost, going on without cached KV: %s", self._name, error)

    def close(self) -> None:
        """Ends the session. Blocks until its call has ended."""
        with self._changed:
            self._closed = True
            if self._client is not None:
                self._gone.append(self._client)
                self._client = None
            self._changed.notify_all()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._client is None or self._closed)
                gone, self._gone = self._gone, []
                closed = self._closed
            for client in gone:
                try:
                    client.close()  # So that its blocks do not wait for the end of its lease.
                except PagodaError:
                    pass
            if closed:
                return
            client = self._try_once()
            with self._changed:
                if client is not None and self._closed:
                    self._gone.append(client)
                elif client is not None:
                    self._client = client
                    self._changed.notify_all()
                else:
                    self._changed.wait_for(lambda: self._closed, self._retry)

    def _try_once(self) -> Client | None:
        try:
            client = self._connect()
        except (PagodaError, ValueError, OSError) as error:
            if str(error) != self._complaint:  # Once, and not twice a second.
                self._complaint = str(error)
                log.warning("%s: no session: %s", self._name, error)
            return None
        self._complaint = ""
        log.info("%s: a session in cache %s", self._name, client.cache.name)
        return client
