"""A session that the threads of an engine share. It is reopened after a loss, and never closed
during a copy."""

import contextlib
import dataclasses
import logging
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

from pagoda._contract import v1
from pagoda._map_socket import MapSocket
from pagoda.caches import CacheIdentity, Layers
from pagoda.client import Client, connect, open_cache
from pagoda.connector.keyed_options import KeyedOptions
from pagoda.connector.link import Link
from pagoda.connector.page_memory import Bytes
from pagoda.connector.populate import populate
from pagoda.errors import Exhausted, PagodaError, SessionGone, TimedOut, Unavailable, is_broken
from pagoda.pools import map_pools
from pagoda.values import Tier

log = logging.getLogger("pagoda.connector")

# Seconds for an answer when an operation's time is used up: the sequences must still be released.
_LEAST_SECONDS = 0.05
# Seconds after which sequences are ended if no other batch has ended them.
_LEAVE_SECONDS = 0.01
_MOST_LEAVING = 1024
# The daemon allocates a new cache's memory before it answers. Only the link's thread waits for
# that.
_OPEN_SECONDS = 60.0


class Budget:
    """The seconds that one operation can still wait for the daemon. Copies are not counted."""

    def __init__(self, seconds: float) -> None:
        self.left = seconds

    @contextlib.contextmanager
    def spend(self) -> Iterator[float]:
        """The `with` block waits for the daemon, at most the yielded seconds."""
        started = time.monotonic()
        try:
            yield max(self.left, _LEAST_SECONDS)
        finally:
            self.left -= time.monotonic() - started


@dataclasses.dataclass(eq=False)
class MappedSession:
    """A session and the slots of its cache."""

    client: Client
    slots: Bytes
    """(slots, page bytes)."""
    users: int = 0
    """The operations that use it now."""
    leaving: dict[int, float] = dataclasses.field(default_factory=dict)
    """Sequences to be ended, and the time from which they can be ended."""


class SharedSession:
    """Thread-safe.

    Invariants:
    1. A session is closed only when no operation uses it, because closing it declares that this
      process no longer writes to its slots.
    2. After the first failure no operation begins with the session, so none waits for the same
      daemon again.
    3. A sequence that leaves is ended with the next batch of any operation, or a little later
      without one.
    """

    def __init__(self, name: str, *, identity: CacheIdentity, page_bytes: int, block_tokens: int, options: KeyedOptions) -> None:
        self.name = name
        self._identity = identity
        self._page_bytes = page_bytes
        self._block_tokens = block_tokens
        self._options = options
        self._lock = threading.Lock()
        self._idle = threading.Condition(self._lock)
        self._left = threading.Condition(self._lock)
        self._sessions: dict[Client, MappedSession] = {}
        """The open session, and lost sessions that operations still use."""
        self._closed = False
        self._complaints: set[str] = set()
        self._stop_populating = threading.Event()
        self._link = Link(self._connect, name=name)
        self._leaver = threading.Thread(target=self._leave_in_time, name=f"pagoda-leave-{name}", daemon=True)
        self._leaver.start()

    def wait(self, seconds: float) -> bool:
        """Waits until there is a session. Returns whether there is one."""
        return self._link.wait(seconds)

    @property
    def is_open(self) -> bool:
        with self._lock:
            return self._usable() is not None

    def is_current(self, session: MappedSession) -> bool:
        with self._lock:
            return self._usable() is session

    @contextlib.contextmanager
    def use(self) -> Iterator[MappedSession | None]:
        """Yields the session, which is not closed during the `with` block, or None if there is
        none. A failure of the daemon ends the block and is not raised further."""
        with self._lock:
            session = self._usable()
            if session is not None:
                session.users += 1
        if session is None:
            yield None
            return
        try:
            yield session
        except PagodaError as error:
            self._fail(session, error)
        finally:
            with self._idle:
                session.users -= 1
                self._forget_unused()
                self._idle.notify_all()

    def run(self, session: MappedSession, operations: list[Any], budget: Budget) -> list[Any]:
        """Runs a batch and returns its results. It is sent only once: a broken connection is a lost
        session."""
        return list(self.answer(session, operations, budget).results)[-len(operations):] if operations else []

    def answer(self, session: MappedSession, operations: list[Any], budget: Budget) -> Any:
        """Like run, but returns the daemon's whole answer. The ends of leaving sequences come
        first, and so do their results."""
        with self._lock:
            now = time.monotonic()
            leaving = [sequence for sequence, due in session.leaving.items() if due <= now][:_MOST_LEAVING]
            for sequence in leaving:
                del session.leaving[sequence]
        ends = [v1.Operation(free_sequence=v1.FreeSequenceRequest(sequence_id=sequence)) for sequence in leaving]
        client = session.client
        request = v1.ExecuteRequest(session=client._session.ref, batch=v1.Batch(operations=ends + operations))
        try:
            with budget.spend() as seconds:
                return client._unary(client._calls.execute, request, min(seconds, self._options.timeout)).result
        except PagodaError:
            with self._lock:
                session.leaving |= dict.fromkeys(leaving, 0.0)
            raise

    def leave(self, session: MappedSession, sequences: Sequence[int], seconds: float = 0.0) -> None:
        """Ends sequences after `seconds`, with the next batch. The last one ends first, so that the
        first pages are evicted last."""
        if sequences:
            with self._left:
                session.leaving |= dict.fromkeys(reversed(sequences), time.monotonic() + seconds)
                self._left.notify()

    def keep(self, session: MappedSession, sequences: Sequence[int]) -> set[int]:
        """Undoes `leave`. Returns the sequences that are not already being ended."""
        with self._lock:
            return {sequence for sequence in sequences if session.leaving.pop(sequence, None) is not None}

    def confirm(self, session: MappedSession, budget: Budget) -> None:
        """Raises unless the session is alive. If it is alive, the held slots were not reused until
        now. Asks the map socket, which answers faster than a batch."""
        with budget.spend() as seconds:
            MapSocket(session.client.session_ref, timeout=min(seconds, self._options.timeout)).describe()

    def note(self, error: PagodaError) -> None:
        """A refused call is a miss, and is logged once. A full cache is normal."""
        if not isinstance(error, Exhausted) and error.reason not in self._complaints:
            self._complaints.add(error.reason)
            log.warning("%s: a call was refused, which counts as a miss: %s", self.name, error)

    def close(self) -> None:
        """Ends the session when no operation uses it. Waits for both, but not for a daemon that
        does not answer."""
        patience = 2 * self._options.timeout + 1
        with self._idle:
            self._closed = True
            self._stop_populating.set()
            self._left.notify()
            if not self._idle.wait_for(lambda: not any(session.users for session in self._sessions.values()), patience):
                # A copy is still running. Its blocks stay out of use until this process ends.
                return
        closing = threading.Thread(target=self._link.close, name="pagoda-close", daemon=True)
        closing.start()
        closing.join(patience)

    def _usable(self) -> MappedSession | None:
        """The open session. The caller holds the lock."""
        if self._closed:
            return None
        client = self._link.client
        self._forget_unused()
        return self._sessions.get(client) if client is not None else None

    def _forget_unused(self) -> None:
        """Closes lost sessions that no operation uses. The caller holds the lock."""
        for client in self._link.lost_clients:
            session = self._sessions.get(client)
            if session is None or not session.users:
                self._sessions.pop(client, None)
                self._link.forget(client)

    def _fail(self, session: MappedSession, error: PagodaError) -> None:
        if isinstance(error, (Unavailable, TimedOut, SessionGone)) or is_broken(error):
            self._link.lost(session.client, error)
        else:
            self.note(error)

    def _leave_in_time(self) -> None:
        """Runs in a thread: ends due sequences for which no batch comes."""
        while True:
            with self._left:
                if self._closed:
                    return
                session = self._usable()
                due = min(session.leaving.values(), default=None) if session is not None else None
                if due is None or due > time.monotonic():
                    self._left.wait(None if due is None else due - time.monotonic())
                    continue
            time.sleep(_LEAVE_SECONDS)
            with self.use() as session:
                if session is not None:
                    self.answer(session, [], Budget(self._options.timeout))

    def _connect(self) -> Client:
        """Opens the cache, a session in it and its memory. Runs in the link's thread."""
        options = self._options
        open_cache(options.endpoint, self.name, identity=self._identity, layers=[Layers.opaque(1, bytes_per_block=self._page_bytes)],
                   tokens_per_block=self._block_tokens, host=options.host, disk=options.disk, timeout=_OPEN_SECONDS, token=options.token)
        client = connect(options.endpoint, cache=self.name, name=self.name, timeout=options.timeout, token=options.token)
        try:
            (pool,) = map_pools(client.session_ref, tier=Tier.PRIMARY, timeout=options.timeout)
            slots = pool.writable_array[:, 0, :self._page_bytes]
        except BaseException:
            client.close()
            raise
        with self._lock:
            self._stop_populating.set()  # The flag of an earlier session.
            self._stop_populating = threading.Event()
            self._sessions[client] = MappedSession(client, slots)
        if options.populate:
            threading.Thread(target=populate, args=(slots, self._stop_populating), name="pagoda-populate", daemon=True).start()
        return client
