"""Fetches of a request's prefix from other machines: from a daemon that the request names, and from
the store of its own daemon. The scheduler asks whether a fetch is over, and never waits for one."""

import collections
import logging
import math
import time
from collections.abc import Iterable

from pagoda._exchange import PendingCall
from pagoda.client import Client
from pagoda.connector.request import Text
from pagoda.errors import NotServed, PagodaError, PermissionDenied, SessionGone, Unauthenticated, Unavailable, is_broken
from pagoda.values import FetchedPrefix, FetchOutcome

log = logging.getLogger("pagoda.connector")

STORE = ""  # The source that means the daemon's store.
MOST_SOURCES = 256
GRACE_SECONDS = 0.25  # The daemon answers a little after the deadline that it is given.
AGAIN_SECONDS = (0.01, 0.1)  # The first and the longest pause before a named source is asked again.


class Sources:
    """Which sources are worth asking. What was learnt of them holds for one session. Not
    thread-safe: the SchedulerSide's lock guards it."""

    def __init__(self, *, store: bool = True, pause: float = 5.0) -> None:
        """`store`: whether the daemon's store is asked, if there is one. A daemon that a request
        names is always asked. `pause`: seconds for which a source that failed is not asked."""
        self._store = store
        self._pause = pause
        self._client: Client | None = None
        self._not_before: dict[str, float] = {}

    def of(self, client: Client, text: Text, matched_tokens: int) -> list[str]:
        """The sources to ask for the tokens after the first `matched_tokens`, in this order."""
        if client is not self._client:
            self._client, self._not_before = client, {}
        wanted = [STORE] if self._store else []
        if text.source and (not text.source_tokens or text.source_tokens > matched_tokens):
            wanted.insert(0, text.source)
        now = time.monotonic()
        return [source for source in wanted if self._not_before.get(source, 0.0) <= now]

    def pause(self, source: str) -> None:
        """This source failed."""
        self._set(source, time.monotonic() + self._pause)

    def leave_out(self, source: str) -> None:
        """This source never has anything for this session."""
        self._set(source, math.inf)

    def _set(self, source: str, not_before: float) -> None:
        if len(self._not_before) >= MOST_SOURCES:
            # Requests name sources, so there can be any number of them.
            self._not_before = {known: until for known, until in self._not_before.items() if known == STORE}
        self._not_before[source] = not_before


class Fetch:
    """One request's fetch, from one source after another, until its deadline. It asks each source
    once, with one exception. A named source that does not have all its promised tokens yet is asked
    again, because the engine there says that a prompt is computed a moment before the daemon there
    has its last blocks. Not thread-safe: the SchedulerSide's lock guards it."""

    def __init__(self, client: Client, text: Text, sources: Sources, wanted_of: Iterable[str], *, wanted: int, seconds: float) -> None:
        """`wanted_of`: the sources, in their order. `wanted`: the tokens that the request can use.
        `seconds`: the time that it has."""
        self.error: PagodaError | None = None
        """The failure of the daemon itself that ended it."""
        self.fetched_tokens = 0
        self.matched_tokens: int | None = 0
        """The tokens that match since. None: this is not known, because an answer is missing."""
        self._client, self._text, self._sources = client, text, sources
        self._left = collections.deque(wanted_of)
        self._wanted = wanted
        self._deadline = time.monotonic() + seconds
        self._call: PendingCall[FetchedPrefix] | None = None
        self._not_before = 0.0
        self._pause = AGAIN_SECONDS[0]
        self.is_over()  # Begins.

    def is_over(self) -> bool:
        """Whether it has ended. Begins the next call if one is due. Does not block."""
        while self._left:
            now = time.monotonic()
            if self._call is None:
                if now >= self._deadline:
                    break
                if now < self._not_before:
                    return False
                self._begin(self._deadline - now)
            elif self._call.done():
                self._take(self._left[0], self._call)
            elif now < self._deadline + GRACE_SECONDS:
                return False
            else:
                self._sources.pause(self._left[0])
                self.cancel()
        self._left.clear()
        return True

    def cancel(self) -> None:
        """Ends it."""
        self._left.clear()
        if self._call is not None:
            self._call.cancel()
            self._call, self.matched_tokens = None, None

    def _begin(self, seconds: float) -> None:
        text = self._text
        try:
            self._call = self._client.fetch_prefix_async(text.tokens[:], source=self._left[0] or None, deadline=max(seconds, 0.001),
                                                         namespace=text.namespace, multimodal_items=text.items)
        except PagodaError as error:
            self._failed(self._left[0], error)

    def _take(self, source: str, call: PendingCall[FetchedPrefix]) -> None:
        self._call = None
        try:
            got = call.result()
        except PagodaError as error:
            self._failed(source, error)
            return
        self.fetched_tokens += got.fetched_tokens
        self.matched_tokens = got.matched_tokens
        if got.matched_tokens >= self._wanted or got.outcome in (FetchOutcome.NO_ROOM, FetchOutcome.CANCELLED):
            self._left.clear()
            return
        if got.outcome is FetchOutcome.NO_SOURCE:
            self._sources.leave_out(source)
        elif got.outcome is FetchOutcome.FAILED:
            self._sources.pause(source)
        elif got.outcome in (FetchOutcome.MISSING, FetchOutcome.FETCHED) and self._is_promised(source, got.matched_tokens):
            self._not_before = time.monotonic() + self._pause
            self._pause = min(2 * self._pause, AGAIN_SECONDS[1])
            return
        self._left.popleft()

    def _is_promised(self, source: str, matched_tokens: int) -> bool:
        """Whether a named source is to have more than this."""
        return source != STORE and matched_tokens < min(self._text.source_tokens, self._wanted)

    def _failed(self, source: str, error: PagodaError) -> None:
        """The call did not get an answer, or was refused."""
        self._left.popleft()
        self.matched_tokens = None
        if isinstance(error, (NotServed, PermissionDenied)):
            self._sources.leave_out(source)
            log.warning("prefixes are not fetched from %s: %s", source or "the daemon's store", error)
        elif isinstance(error, (Unavailable, SessionGone, Unauthenticated)) or is_broken(error):
            self.error = error
            self._left.clear()
        else:
            self._sources.pause(source)
            log.warning("a fetch from %s failed: %s", source or "the daemon's store", error)
