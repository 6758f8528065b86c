"""Pages under keys that an engine makes. They are looked up, read and written in batches. Every
failure is a miss instead of an error."""

import dataclasses
import functools
import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from pagoda._contract import v1
from pagoda._rows import rows
from pagoda.caches import CacheIdentity
from pagoda.connector.keyed_options import KeyedOptions, cache_name, tokens_per_block
from pagoda.connector.keyed_session import Budget, MappedSession, SharedSession
from pagoda.connector.page_memory import Copier, PageMemory
from pagoda.errors import PagodaError, make, of_result
from pagoda.values import PrefetchTarget

log = logging.getLogger("pagoda.connector")

R = TypeVar("R")

# The most chains of one batch. With two operations per chain it stays below the daemon's 4,096.
_MOST_CHAINS = 1024
# How long found pages are held for the read. An engine does not report when it decides not to read.
_KEPT_SECONDS = 2.0


class Chain(NamedTuple):
    """Pages that follow one another. A page is named by its key and by all keys before it. A chain
    of one key therefore names a page by that key alone."""

    keys: Sequence[bytes]
    """1 to 64 bytes each."""
    start: int = 0
    """The keys before this one only name the later ones: their pages are neither read nor
    written."""
    salt: str = ""
    """Chains of different salts share nothing."""
    memory: PageMemory | None = None
    """The memory that pages are read to or written from; None for look-ups."""
    pages: Sequence[int] = ()
    """The page numbers in `memory` of keys[start], keys[start + 1], ..."""


class Hold(NamedTuple):
    """Pages that stay where they are until they are released or the session ends."""

    session: MappedSession
    sequence_id: int
    places: Sequence[int]
    """The slots of the chain's pages, from its first key on, as far as they are cached."""


@dataclasses.dataclass
class KeyedCounts:
    """Counts since the start. Several threads count without a lock, so the figures are
    approximate."""

    asked_pages: int = 0
    found_pages: int = 0
    read_pages: int = 0
    unread_pages: int = 0
    """Pages that were to be read, but were not there or could not be confirmed."""
    written_pages: int = 0
    unwritten_pages: int = 0


class _Opened(NamedTuple):
    """The sequence of a chain."""

    hold: Hold
    places: Sequence[int]
    """All slots of the sequence, including those of pages that are not cached."""


class _Kept:
    """Holds of pages that were found a moment ago. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holds: dict[tuple[str, int, bytes], tuple[Hold, Sequence[bytes]]] = {}

    def pages(self, session: MappedSession) -> int:
        """Returns the number of held pages. Removes holds that have expired."""
        with self._lock:
            self._holds = {name: kept for name, kept in self._holds.items() if kept[0].sequence_id in session.leaving}
            return sum(len(hold.places) for hold, _ in self._holds.values())

    def add(self, chain: Chain, hold: Hold) -> None:
        with self._lock:
            self._holds[chain.salt, chain.start, chain.keys[chain.start]] = hold, chain.keys

    def take(self, chains: Sequence[Chain], session: MappedSession) -> list[Hold | None]:
        """Returns the hold of each chain, or of a longer one that begins with it."""
        with self._lock:
            return [self._take(chain, session) if self._holds else None for chain in chains]

    def _take(self, chain: Chain, session: MappedSession) -> Hold | None:
        name = (chain.salt, chain.start, chain.keys[chain.start])
        hold, keys = self._holds.get(name, (None, ()))
        if hold is None or hold.session is not session or len(hold.places) < len(chain.keys) or keys[:len(chain.keys)] != chain.keys:
            return None
        del self._holds[name]
        return hold


class KeyedPages:
    """A cache of opaque pages. If the daemon is gone, slow or full, the only effect is misses.
    Thread-safe.

    Invariants:
    1. No method raises because of a failure of the daemon, and none waits longer for its answers
      than the timeout. A look-up that waits for a disk waits for the fetch deadline instead, if
      that is longer.
    2. A reader holds the pages until after its copy, and then checks that the session is still
      alive. Pages that were held in a live session have not been overwritten.
    """

    def __init__(self, engine: str, *, identity: CacheIdentity, page_bytes: int, tokens_per_page: int = 1,
                 options: KeyedOptions = KeyedOptions()) -> None:
        """`engine`: the start of the cache's name. `identity`: another identity is another cache.
        `tokens_per_page`: for the daemon's token counts."""
        self.page_bytes = page_bytes
        self.name = options.cache or cache_name(engine, identity, page_bytes, tokens_per_page)
        self.counts = KeyedCounts()
        self._options = options
        self._block_tokens = tokens_per_block(tokens_per_page, page_bytes)
        self._copier = Copier(options.copy_threads)
        self._kept = _Kept()
        self._shared = SharedSession(self.name, identity=identity, page_bytes=page_bytes, block_tokens=self._block_tokens, options=options)

    @property
    def is_open(self) -> bool:
        """Whether there is a session now."""
        return self._shared.is_open

    def wait(self, seconds: float) -> bool:
        """Waits until the cache is open. Returns whether it is."""
        return self._shared.wait(seconds)

    def count(self, chains: Sequence[Chain]) -> list[int]:
        """Returns how many keys of each chain, from the first one on, are cached in memory. Pages
        that are only on disk are fetched, and waited for until options.fetch_deadline. Takes one
        call if nothing is on disk."""
        return self._counted(chains, self._look_up_budget())

    def find(self, chains: Sequence[Chain]) -> list[int]:
        """Like `count`, but also holds the found pages for a moment, for the read that usually
        follows. It takes one more call, and the read one less. At most a quarter of the cache is
        held in this way."""
        deadline = time.monotonic() + self._options.fetch_deadline
        found = self._each(chains, lambda session, part, left: self._find(session, part, left, deadline), 0, self._look_up_budget())
        self._count_found(chains, found)
        return found

    def read(self, chains: Sequence[Chain]) -> list[int]:
        """Copies the cached pages of each chain into its memory. Returns how many pages there are
        from chain.start on. The memory's bytes after them are undefined. Takes one call, or none if
        `find` found the pages a moment ago."""
        done = self._each(chains, self._read, 0, self._budget())
        self.counts.read_pages += sum(done)
        self.counts.unread_pages += sum(len(chain.keys) - chain.start for chain in chains) - sum(done)
        return done

    def write(self, chains: Sequence[Chain]) -> list[int]:
        """Copies the pages of each chain that are not cached from its memory. Returns how many
        pages are cached then, from chain.start on. It is 0 if the earlier pages are not cached, or
        if there is no free block. Takes two calls."""
        done = self._each(chains, self._write, 0, self._budget())
        self.counts.written_pages += sum(done)
        self.counts.unwritten_pages += sum(len(chain.keys) - chain.start for chain in chains) - sum(done)
        return done

    def hold(self, chains: Sequence[Chain]) -> list[Hold | None]:
        """Holds the cached pages of each chain until `release`; None if there are none. Takes two
        calls, or one if nothing is cached."""
        budget = self._look_up_budget()
        found = self._counted(chains, budget)
        there = [index for index, pages in enumerate(found) if pages]
        wanted = [chains[index]._replace(keys=chains[index].keys[:found[index]]) for index in there]
        nothing: Hold | None = None
        holds = [nothing] * len(chains)
        for index, hold in zip(there, self._each(wanted, self._hold, nothing, budget)):
            holds[index] = hold
        return holds

    def take(self, chains: Sequence[Chain]) -> list[Hold | None]:
        """Like `hold`, for chains that were found: without a look-up, and without a fetch from
        disk. Takes one call, or none if `find` found the pages a moment ago."""
        return self._each(chains, self._take, None, self._budget())

    def load(self, holds: Sequence[Hold], memory: PageMemory) -> bool:
        """Copies the last page of hold i into page i of the memory. False: the bytes there are
        undefined. Takes no call."""
        alive = False
        with self._shared.use() as session:
            if session is not None and all(hold.session is session for hold in holds):
                self._copier.copy(memory.load, session.slots, range(len(holds)), [hold.places[-1] for hold in holds])
                self._shared.confirm(session, self._budget())
                alive = True
        self.counts.read_pages += len(holds) if alive else 0
        self.counts.unread_pages += 0 if alive else len(holds)
        return alive

    def has(self, hold: Hold) -> bool:
        """Whether the hold is of the current session. A hold of another session is worthless."""
        return self._shared.is_current(hold.session)

    def release(self, holds: Sequence[Hold]) -> None:
        """Ends holds soon. Holds of a lost session have already ended."""
        for session in {hold.session for hold in holds}:
            self._shared.leave(session, [hold.sequence_id for hold in holds if hold.session is session])

    def remove(self, chains: Sequence[Chain]) -> list[int]:
        """Removes every page whose chain begins with these keys. Returns the removed blocks of each
        chain."""
        return self._each(chains, self._remove, 0, self._budget())

    def clear(self) -> bool:
        """Removes every page, for all users of the cache. Returns whether it succeeded."""
        done = False
        with self._shared.use() as session:
            if session is not None:
                session.client.reset_prefix_cache()
                done = True
        return done

    def weights_updated(self, version: str) -> bool:
        """The engine has new weights in place: removes every page, as clear does. `version`: what
        the log calls the new weights."""
        log.warning("%s: the weights were updated in place to %s: all cached KV is removed", self.name, version)
        return self.clear()

    def usage(self) -> tuple[int, int]:
        """Returns the used and the total bytes over all tiers of the cache; (0, 0) if the daemon
        does not tell."""
        with self._shared.use() as session:
            for cache in session.client.caches() if session is not None else ():
                if cache.name == self.name:
                    return sum(tier.used_blocks for tier in cache.tiers) * self.page_bytes, sum(tier.bytes for tier in cache.tiers)
        return 0, 0

    def close(self) -> None:
        """Ends the session when no operation uses it. Later operations find nothing."""
        self._shared.close()
        self._copier.close()

    # --- The parts of operations, within a session ---

    def _each(self, chains: Sequence[Chain], run: Callable[[MappedSession, Sequence[Chain], Budget], list[R]], nothing: R,
              budget: Budget) -> list[R]:
        """Runs an operation in batches that the daemon accepts. `nothing`: the result of each chain
        whose batch failed."""
        done: list[R] = []
        for first in range(0, len(chains), _MOST_CHAINS):
            part = chains[first:first + _MOST_CHAINS]
            with self._shared.use() as session:
                if session is not None:
                    done += run(session, part, budget)
            done += [nothing] * (first + len(part) - len(done))
        return done

    def _budget(self) -> Budget:
        return Budget(self._options.timeout)

    def _look_up_budget(self) -> Budget:
        return Budget(max(self._options.timeout, self._options.fetch_deadline))

    def _counted(self, chains: Sequence[Chain], budget: Budget) -> list[int]:
        deadline = time.monotonic() + self._options.fetch_deadline
        found = self._each(chains, lambda session, part, left: self._count(session, part, left, deadline), 0, budget)
        self._count_found(chains, found)
        return found

    def _count_found(self, chains: Sequence[Chain], found: Sequence[int]) -> None:
        self.counts.asked_pages += sum(len(chain.keys) for chain in chains)
        self.counts.found_pages += sum(found)

    def _count(self, session: MappedSession, chains: Sequence[Chain], budget: Budget, deadline: float) -> list[int]:
        before = -1
        while True:
            found = self._match(session, chains, budget)
            here = sum(near for near, _ in found)
            below = [chain for chain, (near, anywhere) in zip(chains, found) if anywhere > near]
            if not below or here <= before or not self._fetch(session, below, budget, deadline):
                return [near for near, _ in found]
            # One fetch brings at most a part of the memory. If it brought nothing, there is no free
            # block.
            before = here

    def _find(self, session: MappedSession, chains: Sequence[Chain], budget: Budget, deadline: float) -> list[int]:
        found = self._count(session, chains, budget, deadline)
        capacity = session.slots.shape[0] // 4 - self._kept.pages(session)
        wanted = {}
        for index, (chain, pages) in enumerate(zip(chains, found)):
            capacity -= pages
            if pages > chain.start and capacity >= 0:
                wanted[index] = chain._replace(keys=chain.keys[:pages])
        opened = self._open(session, list(wanted.values()), self._block_tokens, budget)
        self._shared.leave(session, _ids(opened), _KEPT_SECONDS)
        for (index, chain), one in zip(wanted.items(), opened):
            found[index] = len(one.hold.places) if one else 0
            if one:
                self._kept.add(chain, one.hold)
        return found

    def _match(self, session: MappedSession, chains: Sequence[Chain], budget: Budget) -> list[tuple[int, int]]:
        """The number of each chain's keys that are cached in memory, and in any tier."""
        results = self._shared.run(session, [v1.Operation(match_prefix=v1.MatchPrefixRequest(
            namespace=_namespace(chain.salt), keys=chain.keys)) for chain in chains], budget)
        matches = [result.match_prefix for result in results]  # Empty if the operation failed.
        return [(match.matched_tokens // self._block_tokens, match.cached_tokens // self._block_tokens) for match in matches]

    def _fetch(self, session: MappedSession, chains: Sequence[Chain], budget: Budget, deadline: float) -> bool:
        """Fetches chains from the disk. Returns whether some pages arrived, so that another look-up
        is useful."""
        left = deadline - time.monotonic()
        if left < 0.001:
            return False
        results = self._shared.run(session, [v1.Operation(prefetch_prefix=v1.PrefetchPrefixRequest(
            namespace=_namespace(chain.salt), keys=chain.keys, target=int(PrefetchTarget.MEMORY),
            deadline_ms=round(left * 1000))) for chain in chains], budget)
        ticket = max(result.prefetch_prefix.fetch_ticket for result in results)
        return ticket > 0 and self._is_reached(session, "completed_fetch_ticket", ticket, budget, deadline)

    def _is_reached(self, session: MappedSession, lane: str, ticket: int, budget: Budget, deadline: float) -> bool:
        """Waits for a ticket, with several calls if needed."""
        pause = 0.0005
        while getattr(self._shared.answer(session, [], budget), lane) < ticket:
            if time.monotonic() + pause > deadline or budget.left <= 0:
                return False
            with budget.spend():
                time.sleep(pause)
            pause = min(2 * pause, 0.008)
        return True

    def _read(self, session: MappedSession, chains: Sequence[Chain], budget: Budget) -> list[int]:
        holds = self._take(session, chains, budget)
        try:
            for memory, pages, places in _by_memory((chain, chain.start, hold.places) for chain, hold in zip(chains, holds) if hold):
                self._copier.copy(memory.load, session.slots, pages, places)
            if any(holds):
                self._shared.confirm(session, budget)
        finally:
            self._shared.leave(session, [hold.sequence_id for hold in holds if hold])
        return [max(len(hold.places) - chain.start, 0) if hold else 0 for chain, hold in zip(chains, holds)]

    def _write(self, session: MappedSession, chains: Sequence[Chain], budget: Budget) -> list[int]:
        opened = self._open(session, chains, 0, budget)
        missing = [(chain, one) for chain, one in zip(chains, opened) if one and chain.start <= len(one.hold.places) < len(chain.keys)]
        whole: dict[int, int] = {}
        try:
            for memory, pages, places in _by_memory((chain, len(one.hold.places), one.places) for chain, one in missing):
                self._copier.copy(memory.save, session.slots, pages, places)
            whole = {one.hold.sequence_id: len(chain.keys) for chain, one in missing}
        finally:
            stored = self._commit_and_free(session, whole, _ids(opened), budget)
        return [max(stored.get(one.hold.sequence_id, len(one.hold.places)) - chain.start, 0) if one else 0
                for chain, one in zip(chains, opened)]

    def _hold(self, session: MappedSession, chains: Sequence[Chain], budget: Budget) -> list[Hold | None]:
        holds = [one.hold if one else None for one in self._open(session, chains, self._block_tokens, budget)]
        self._shared.leave(session, [hold.sequence_id for hold in holds if hold and not hold.places])
        return [hold if hold and hold.places else None for hold in holds]

    def _take(self, session: MappedSession, chains: Sequence[Chain], budget: Budget) -> list[Hold | None]:
        """Takes what `find` holds of each chain. The other chains are held anew."""
        found = self._kept.take(chains, session)
        kept = self._shared.keep(session, [hold.sequence_id for hold in found if hold])
        holds = [hold._replace(places=hold.places[:len(chain.keys)]) if hold and hold.sequence_id in kept else None
                 for chain, hold in zip(chains, found)]
        missing = [index for index, hold in enumerate(holds) if hold is None]
        try:
            for index, hold in zip(missing, self._hold(session, [chains[index] for index in missing], budget)):
                holds[index] = hold
        except BaseException:
            self._shared.leave(session, list(kept))
            raise
        return holds

    def _remove(self, session: MappedSession, chains: Sequence[Chain], budget: Budget) -> list[int]:
        results = self._shared.run(session, [v1.Operation(invalidate_prefix=v1.InvalidatePrefixRequest(
            namespace=_namespace(chain.salt), keys=chain.keys)) for chain in chains], budget)
        return [int(result.invalidate_prefix.removed_blocks) for result in results]

    def _open(self, session: MappedSession, chains: Sequence[Chain], reserved_tokens: int, budget: Budget) -> list[_Opened | None]:
        """Opens a sequence of each chain. It holds the matched blocks. `reserved_tokens`: 0
        reserves the whole chain. The least is one block, which exceeds the match only if nothing
        matched."""
        if not chains:
            return []
        ids = [session.client._session.next_id() for _ in chains]
        results = self._shared.run(session, [v1.Operation(add_sequence=v1.AddSequenceRequest(
            sequence_id=sequence, namespace=_namespace(chain.salt), keys=chain.keys, reserved_tokens=reserved_tokens))
            for sequence, chain in zip(ids, chains)], budget)
        opened: list[_Opened | None] = []
        ticket = 0
        for sequence, result in zip(ids, results):
            if result.HasField("error"):
                self._shared.note(make(of_result(result.error)))
                opened.append(None)
                continue
            done = result.add_sequence
            places = rows(done.tables[0].blocks)[:, 2].tolist()
            opened.append(_Opened(Hold(session, sequence, places[:done.matched_tokens // self._block_tokens]), places))
            ticket = max(ticket, done.ready_ticket)
        is_ready = False
        try:
            is_ready = not ticket or self._is_reached(session, "completed_ticket", ticket, budget, time.monotonic() + budget.left)
        finally:
            if not is_ready:  # Also if the daemon refuses to answer: the session may continue.
                self._shared.leave(session, _ids(opened))
        return opened if is_ready else [None] * len(chains)

    def _commit_and_free(self, session: MappedSession, whole: dict[int, int], sequences: Sequence[int], budget: Budget) -> dict[int, int]:
        """Commits complete pages of some sequences and ends all sequences. Returns the successful
        commits."""
        if not sequences:
            return {}
        operations = [v1.Operation(commit_tokens=v1.CommitTokensRequest(sequence_id=sequence, computed_tokens=pages * self._block_tokens))
                      for sequence, pages in whole.items()]
        try:
            results = self._shared.run(session, operations + [_free(sequence) for sequence in sequences[::-1]], budget)
        except PagodaError:
            # A batch that is refused as a whole frees nothing.
            self._shared.leave(session, sequences)
            raise
        stored = {}
        for (sequence, pages), result in zip(whole.items(), results):
            if result.HasField("error"):
                self._shared.note(make(of_result(result.error)))
            else:
                stored[sequence] = pages
        return stored


@functools.lru_cache(4096)
def _namespace(salt: str) -> Any:
    """Cached, because there are few salts: shards of a model, or users."""
    return v1.Namespace(cache_salt=salt, keyed=True)


def _free(sequence: int) -> Any:
    return v1.Operation(free_sequence=v1.FreeSequenceRequest(sequence_id=sequence))


def _ids(opened: Sequence[_Opened | None]) -> list[int]:
    return [one.hold.sequence_id for one in opened if one]


def _by_memory(wanted: Any) -> list[tuple[PageMemory, list[int], list[int]]]:
    """From (chain, first, places): the pages from keys[first] on and their slots, grouped by
    memory."""
    found: dict[int, tuple[PageMemory, list[int], list[int]]] = {}
    for chain, first, places in wanted:
        _, pages, slots = found.setdefault(id(chain.memory), (chain.memory, [], []))
        slots += places[first:]
        pages += chain.pages[first - chain.start:][:len(places[first:])]
    return list(found.values())
