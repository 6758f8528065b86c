"""The scheduler's side of a connector, for any engine that provides the tokens of its requests and
its own block tables.

A request has one sequence in the cache, from the first question about it to its end. The sequence
holds the matched blocks, so nothing is promised that eviction could take. Slots for newly computed
KV are reserved before the step that fills the block. Only whole blocks are loaded and saved. If the
daemon does not answer, the only cost is missed hits.
"""

import collections
import logging
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pagoda._call import Pending
from pagoda.client import Client, Sequence as CacheSequence
from pagoda.connector.fetch import Fetch, Sources
from pagoda.connector.handover import Handover, Handovers
from pagoda.connector.link import Link
from pagoda.connector.pages import PageLayout
from pagoda.connector.plan import BlockCopies, StepPlan, StepReport
from pagoda.connector.request import Counts, Held, Scheduled, Text, Work
from pagoda.errors import (Exhausted, KvLost, PagodaError, PermissionDenied, SessionGone, TimedOut, Unauthenticated, Unavailable,
                           is_broken)
from pagoda.values import Lane, PrefetchTarget

log = logging.getLogger("pagoda.connector")

AGAIN_SECONDS = 0.1  # The pause after a batch that the daemon refused.
IDLE_SECONDS = 1.0
NOT_THERE = -1  # In a table: a block that a sliding window has passed.
NULL_BLOCK = 0  # The engine's null block.


class SchedulerSide:
    """Thread-safe. No method raises because of a failure of the daemon. Between two plans the
    engine waits for the daemon for at most `patience` plus one call. After that the session counts
    as lost."""

    def __init__(self, link: Link, layout: PageLayout, *, ranks: int, fetch_deadline: float = 1.0, patience: float = 1.0,
                 sources: Sources | None = None, handovers: Handovers | None = None) -> None:
        """`ranks`: the number of workers whose reports are needed. `fetch_deadline`: seconds that a
        request may wait for the disk and for other machines. `sources`: the other machines that are
        asked; None: none. `handovers`: how prefixes are handed to other machines; None: they are
        not."""
        self._link = link
        self._layout = layout
        self._size = layout.tokens_per_block
        self._ranks = ranks
        self._fetch_deadline = fetch_deadline
        self._patience = patience
        self._sources = sources
        self._handovers = handovers
        self._waited = 0.0  # Seconds since the last plan.
        self._lock = threading.RLock()
        self._held: dict[str, Held] = {}
        self._retired: list[Held] = []  # Requests that end when no copy uses their slots any more.
        self._last_plans: dict[Client, int] = {}  # The last step of each session.
        self._refused: set[str] = set()  # Requests for which there are no free blocks.
        self._to_load: list[str] = []
        self._failed_loads: set[str] = set()
        self._step = 0
        self._done: dict[int, int] = {}
        self._failed_saves: set[int] = set()
        self._counts = Counts()
        self._work: collections.deque[tuple[Work, Held, CacheSequence, int]] = collections.deque()
        self._wake = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="pagoda-commits", daemon=True)
        self._thread.start()

    # --- The engine's calls ---

    def match(self, text: Text, computed: int) -> int | None:
        """Returns how many tokens after the first `computed` can be loaded. None: ask again later,
        because some are being brought from a lower tier. Can be called any number of times."""
        with self._lock, self._waiting():
            # The blocks that the previous request has committed must be visible to this one.
            self._do_work()
            held = self._hold(text)
            if held is None:
                return 0
            # A preempted request waits for its own saves. Their commit moves its windows on, and a
            # load that runs then would read slots of other requests.
            if held.busy_step > self._watermark():
                return None
            if not self._is_up(held):
                return 0 if self._is_stale(held) else None
            most = (len(text.tokens) - 1) // self._size
            if held.cached > most:
                # A sliding window may have passed blocks that a shorter prefix needs.
                self._match_again(held)
            if self._is_stale(held):
                return 0
            held.asked = computed
            held.promised = max(min(held.cached, most) * self._size, computed)
            return held.promised - computed

    def allocated(self, request_id: str, tables: Sequence[Sequence[int]], external: int) -> None:
        """The engine has blocks for the request. It will load `external` of the tokens that `match`
        returned."""
        with self._lock:
            held = self._held.get(request_id)
            if held is None or self._is_stale(held):
                if external:  # The tokens were promised and have been lost since.
                    self._failed_loads.add(request_id)
                    self._counts.failed_loads += 1
                return
            held.tables = [list(table) for table in tables]
            if external:
                held.load = (held.asked, held.asked + external)
                self._to_load.append(request_id)
            # A preempted request gets blocks again.
            if not held.counted:
                self._counts.hit_tokens += external
                self._counts.disk_hit_tokens += self.disk_tokens(request_id, external)
                self._counts.remote_hit_tokens += self.remote_tokens(request_id, external)
            held.counted = True

    def disk_tokens(self, request_id: str, external: int) -> int:
        """Returns how many of the last `external` matched tokens came from disk."""
        held = self._held.get(request_id)
        return min(external - self.remote_tokens(request_id, external), held.from_disk * self._size) if held is not None else 0

    def remote_tokens(self, request_id: str, external: int) -> int:
        """Returns how many of the last `external` matched tokens came from other machines."""
        held = self._held.get(request_id)
        return min(external, held.from_remote * self._size) if held is not None else 0

    def plan(self, scheduled: Iterable[Scheduled], new_blocks: set[int]) -> StepPlan:
        """Returns the workers' copies for the next step."""
        with self._lock:
            self._step += 1
            self._waited = 0.0
            client = self._link.client
            if client is not None:
                self._last_plans[client] = self._step
            groups = len(self._layout.group_windows)
            plan = StepPlan(self._step, client.session_ref.to_bytes() if client is not None else None, {}, set(),
                            BlockCopies.none(groups), new_blocks)
            rows = []
            for row in scheduled:
                held = self._held.get(row.request_id)
                if held is None or self._is_stale(held):
                    continue
                self._extend(held, row)
                full = min(row.computed, len(held.text.tokens)) // self._size
                rows.append((held, full, row.computed // self._size + 1))
            with self._waiting():
                self._reserve_now([(held, full) for held, full, _ in rows if held.saving and full > held.saved])
            for held, full, ahead in rows:
                if not self._is_stale(held):
                    self._plan_saves(plan, held, full)
                    self._reserve_later(held, ahead)
            for request_id in self._to_load:
                self._plan_load(plan, request_id)
            self._to_load.clear()
            plan.failed_loads |= self._failed_loads
            self._failed_loads = set()
            return plan

    def report(self, report: StepReport) -> None:
        """Processes a report of the workers. Blocks whose saves have ended on all workers are
        committed."""
        with self._lock:
            for rank, step in report.done.items():
                self._done[rank] = max(self._done.get(rank, 0), step)
            self._failed_saves |= report.failed_saves
            done = self._watermark()
            for held in (*self._held.values(), *self._retired):
                while held.saves and held.saves[0][0] <= done:
                    step, blocks = held.saves.popleft()
                    if step in self._failed_saves:
                        self._stop_saving(held)
                        held.saves.clear()
                        break
                    self._later(Work.COMMIT, held, blocks)
            self._end_retired()
            self._failed_saves = {step for step in self._failed_saves if step > done}
            self._forget_lost()

    def loads_failed(self, request_ids: Iterable[str]) -> None:
        """The workers could not load promised tokens. These requests are computed and not looked up
        again."""
        with self._lock, self._waiting():
            for request_id in request_ids:
                held = self._held.pop(request_id, None)
                if held is not None:
                    self._retired.append(held)
                    self._refused.add(request_id)
            self._end_retired()
            client = self._link.client
            if client is not None:
                try:
                    client.advance()  # Checks whether the session is alive.
                except PagodaError as error:
                    self._fail(client, error)

    def finished(self, request_id: str, *, hands_over: bool = False) -> Handover | None:
        """The request has ended. Its sequence ends when no copy uses its slots any more.

        `hands_over`: another machine continues the request. Returns where that finds its prefix;
        None if it cannot be handed over. The last blocks are committed a moment later.
        """
        with self._lock, self._waiting():
            self._refused.discard(request_id)
            held = self._held.pop(request_id, None)
            if held is None:
                return None
            handover = self._hand_over(held) if hands_over and not self._is_stale(held) else None
            self._retired.append(held)
            self._end_retired()
            return handover

    @property
    def has_copies_under_way(self) -> bool:
        """Whether reports are still needed before blocks can be committed or freed."""
        with self._lock:
            return bool(self._retired) or any(held.saves for held in self._held.values())

    def reset(self) -> bool:
        """Removes all cached KV, for all users of the cache. Without a daemon it happens as soon as
        one is back. False: the daemon refuses it. Blocks that running requests have saved so far
        are no longer committed."""
        with self._lock:
            self._work = collections.deque(row for row in self._work if row[0] is Work.FREE)
            for held in self._held.values():
                held.saving = False
                held.saves.clear()
                self._retired.append(held)
            for held in self._retired:
                held.saves.clear()
            self._held.clear()
            self._end_retired()
            client = self._link.client
        client = client or self._link.reset_when_back()
        while client is not None:
            try:
                client.reset_prefix_cache()
                return True
            except PagodaError as error:
                self._fail(client, error)
                if self._link.client is client:
                    log.warning("the cache was not reset: %s", error)
                    return False
            client = self._link.reset_when_back()  # The thread can wait longer than the engine.
        return True

    def weights_updated(self, version: str) -> bool:
        """The engine has new weights in place: removes all cached KV, as reset does. Call it after
        the last step with the old weights. `version`: what the log calls the new ones."""
        log.warning("%s: the weights were updated in place to %s: all cached KV is removed", self._link.name, version)
        return self.reset()

    def take_counts(self) -> Counts:
        with self._lock:
            counts, self._counts = self._counts, Counts()
            counts.lost_sessions = self._link.take_losses()
            return counts

    def close(self) -> None:
        """Commits completed saves and ends."""
        with self._wake:
            self._closed = True
            self._wake.notify()
        self._thread.join()

    # --- Holding ---

    def _is_stale(self, held: Held) -> bool:
        """Whether its session, and therefore its sequence, is gone."""
        if held.client is self._link.client:
            return False
        if self._held.get(held.text.request_id) is held:
            del self._held[held.text.request_id]
        return True

    def _hold(self, text: Text) -> Held | None:
        held = self._held.get(text.request_id)
        if held is not None and not self._is_stale(held):
            return held
        client = self._link.client
        if client is None or text.request_id in self._refused:
            return None
        self._counts.queries += 1
        self._counts.queried_tokens += len(text.tokens)
        held = self._open(client, text)
        if held is None:
            return None
        self._held[text.request_id] = held
        if not self._fetch_from_others(held) and held.sequence.matched_below_tokens >= self._size:
            self._fetch(held)
        return None if self._is_stale(held) else held

    def _open(self, client: Client, text: Text, *, again: bool = False) -> Held | None:
        whole = len(text.tokens) // self._size * self._size
        # Reserve for the whole prompt, or else only for a match.
        for reserved in dict.fromkeys((max(whole, self._size), self._size)):
            try:
                sequence = client.sequence(text.tokens[:], reserved_tokens=reserved, namespace=text.namespace, multimodal_items=text.items,
                                           whole_blocks_only=True, uncounted=again)
            except PagodaError as error:
                # More blocks than are free, or than the cache has.
                if isinstance(error, Exhausted) or error.reason == "INVALID_COUNT":
                    continue
                self._fail(client, error)
                return None
            cached = sequence.matched_tokens // self._size
            return Held(text, client, sequence, cached, saved=cached)
        self._refused.add(text.request_id)
        self._counts.unsaved_requests += 1
        return None

    def _fetch_from_others(self, held: Held) -> bool:
        """Begins a fetch of the blocks that other machines may have. False: there is nothing to
        ask."""
        wanted = (len(held.text.tokens) - 1) // self._size * self._size
        if self._sources is None or held.cached * self._size >= wanted or self._fetch_deadline <= 0:
            return False
        sources = self._sources.of(held.client, held.text, held.cached * self._size)
        if sources:
            held.fetch = Fetch(held.client, held.text, self._sources, sources, wanted=wanted, seconds=self._fetch_deadline)
        return bool(sources)

    def _fetch(self, held: Held) -> None:
        """Requests the prefetch of blocks in lower tiers."""
        text = held.text
        try:
            coming = held.client.prefetch(text.tokens[:], target=PrefetchTarget.MEMORY, deadline=self._fetch_deadline, namespace=text.namespace,
                                          multimodal_items=text.items)
        except PagodaError as error:
            self._fail(held.client, error)
            return
        if coming.fetch_ticket:  # Another request may have ordered the blocks.
            held.fetch_ticket = coming.fetch_ticket
            held.fetch_deadline = time.monotonic() + self._fetch_deadline

    def _is_up(self, held: Held) -> bool:
        """Whether its matched blocks can be read now."""
        if held.fetch is not None:
            if not held.fetch.is_over():
                return False
            fetch, held.fetch = held.fetch, None
            if fetch.error is not None:
                self._fail(held.client, fetch.error)
            if self._is_stale(held):
                return False
            if fetch.matched_tokens is None or fetch.matched_tokens >= (held.cached + 1) * self._size:
                self._match_again(held, fetch.fetched_tokens // self._size)
        if held.fetch_ticket:
            if not self._is_done(held, held.fetch_ticket, Lane.FETCH) and time.monotonic() < held.fetch_deadline:
                return False
            held.fetch_ticket = 0
            if self._is_stale(held):
                return False
            self._match_again(held)
        return not self._is_stale(held) and self._is_done(held, held.sequence.ready_ticket, Lane.MEMORY)

    def _match_again(self, held: Held, from_remote: int = 0) -> None:
        """`from_remote`: the blocks that other machines have sent."""
        before = held.cached
        self._later(Work.FREE, held, 0)
        again = self._open(held.client, held.text, again=True)
        if again is None:
            held.cached = held.saved = 0
            held.saving = False
            return
        held.sequence, held.cached, held.saved = again.sequence, again.cached, again.cached
        gained = max(again.cached - before, 0)
        held.from_remote = min(from_remote, gained)
        held.from_disk = gained - held.from_remote

    def _is_done(self, held: Held, ticket: int, lane: Lane) -> bool:
        if ticket <= held.client.completed_tickets[lane]:
            return True
        try:
            held.client.advance()
        except PagodaError as error:
            self._fail(held.client, error)
        return ticket <= held.client.completed_tickets[lane]

    def _forget_lost(self) -> None:
        """Closes lost sessions whose slots no worker uses any more."""
        done = self._watermark()
        for client in self._link.lost_clients:
            if self._last_plans.get(client, 0) <= done:
                self._last_plans.pop(client, None)
                self._link.forget(client)

    def _end_retired(self) -> None:
        done = self._watermark()
        for held in self._retired:
            if held.fetch is not None:
                held.fetch.cancel()
                held.fetch = None
            if held.busy_step <= done:
                if held.hands_over:  # Pinned before it is freed, so that nothing evicts it between.
                    self._later(Work.PIN, held, held.saved)
                self._later(Work.FREE, held, 0)
        self._retired = [held for held in self._retired if held.busy_step > done]

    def _hand_over(self, held: Held) -> Handover | None:
        if self._handovers is None or not held.saved:
            return None
        try:
            address = self._handovers.address(held.client)
        except PagodaError as error:
            self._fail(held.client, error)
            return None
        held.hands_over = bool(address)
        return Handover(address, held.saved * self._size) if address else None

    def _watermark(self) -> int:
        return min(self._done.values()) if len(self._done) >= self._ranks else 0

    # --- Planning ---

    def _extend(self, held: Held, row: Scheduled) -> None:
        if row.new_blocks is None:
            return
        if row.starts_anew or not held.tables:
            held.tables = [list(blocks) for blocks in row.new_blocks]
            return
        for table, blocks in zip(held.tables, row.new_blocks):
            table.extend(blocks)

    def _slots(self, held: Held, group: int) -> Sequence[int]:
        slots: Sequence[int] = held.sequence.tables[self._layout.group_windows[group]].slots
        return slots

    def _reserved(self, held: Held) -> int:
        """The number of blocks in its tables."""
        return min((len(table) for table in held.sequence.tables.values()), default=0)

    def _reserve_now(self, wanted: list[tuple[Held, int]]) -> None:
        """Reserves the slots that this step's saves need."""
        missing = [(held, full) for held, full in wanted if full > self._reserved(held)]
        if missing:
            self._send(missing[0][0].client, [(Work.RESERVE, held, held.sequence, full) for held, full in missing])

    def _reserve_later(self, held: Held, blocks: int) -> None:
        if held.saving and not held.reserving and blocks > self._reserved(held):
            held.reserving = True
            self._later(Work.RESERVE, held, blocks)

    def _plan_saves(self, plan: StepPlan, held: Held, full: int) -> None:
        if not held.saving or full <= held.saved:
            return
        if full > self._reserved(held):
            self._stop_saving(held)
            return
        copies = BlockCopies.none(len(self._layout.group_windows))
        if not self._add(copies, held, held.saved * self._size, full * self._size, into_slots=True):
            self._stop_saving(held)
            return
        for group, (blocks, parts) in enumerate(zip(copies.blocks, copies.parts)):
            plan.saves.blocks[group] += blocks
            plan.saves.parts[group] += parts
        self._counts.saved_blocks += full - held.saved
        held.saved = full
        held.saves.append((plan.step, full))
        held.busy_step = plan.step

    def _plan_load(self, plan: StepPlan, request_id: str) -> None:
        held = self._held.get(request_id)
        copies = BlockCopies.none(len(self._layout.group_windows))
        if held is None or self._is_stale(held) or held.load is None or not self._add(
                copies, held, *held.load, into_slots=False):
            plan.failed_loads.add(request_id)
            self._counts.failed_loads += 1
            return
        held.load = None
        held.busy_step = plan.step
        plan.loads[request_id] = copies
        plan.new_blocks |= copies.all_blocks()

    def _add(self, copies: BlockCopies, held: Held, start: int, end: int, *, into_slots: bool) -> bool:
        """Adds copies of the tokens from `start` to `end`, without those that the windows have
        passed. False: the engine has no bytes for some of them."""
        for group, per_slot in enumerate(self._layout.blocks_per_slot):
            block_tokens = self._size // per_slot
            slots, table = self._slots(held, group), held.tables[group]
            for index in range(start // block_tokens, end // block_tokens):
                if index >= len(table):
                    return False
                slot, block = int(slots[index // per_slot]), table[index]
                if slot != NOT_THERE and block != NULL_BLOCK:
                    copies.add(group, block, slot * per_slot + index % per_slot)
                elif slot != NOT_THERE and into_slots or block != NULL_BLOCK and not into_slots:
                    return False
        return True

    def _stop_saving(self, held: Held) -> None:
        if held.saving:
            held.saving = False
            self._counts.unsaved_requests += 1

    # --- Calls to the daemon ---

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        """Measures the engine's waiting time. A slow daemon must not delay every step."""
        started = time.monotonic()
        yield
        self._waited += time.monotonic() - started
        client = self._link.client
        if client is not None and self._waited > self._patience:
            self._waited = 0.0
            self._link.lost(client, TimeoutError(f"its answers took more than {self._patience:g} s of a step"))

    def _later(self, what: Work, held: Held, blocks: int) -> None:
        """Leaves work to the thread, unless a call of the engine does it before."""
        with self._wake:
            self._work.append((what, held, held.sequence, blocks))
            self._wake.notify()

    def _run(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._work or self._closed, IDLE_SECONDS)
                closed = self._closed
            try:
                with self._lock:
                    self._do_work()
                    self._forget_lost()  # If the engine is idle, only this thread does it.
                    is_left = bool(self._work)
                if closed:
                    return
                if is_left:
                    time.sleep(AGAIN_SECONDS)
            except Exception:  # The thread must go on: without it nothing is freed.
                log.exception("commits failed")

    def _do_work(self) -> None:
        """Does the work that was left for later."""
        if self._work:
            work, self._work = self._work, collections.deque()
            client = self._link.client
            self._send(client, [row for row in work if row[1].client is client])

    def _send(self, client: Client | None, work: list[tuple[Work, Held, CacheSequence, int]]) -> None:
        if client is None or not work:
            return
        batch = client.batch()
        sent: list[tuple[Work, Held, Pending[Any]]] = []
        last = {id(held): number for number, (what, held, _, _) in enumerate(work) if what is Work.COMMIT}
        for number, (what, held, sequence, blocks) in enumerate(work):
            if what is Work.COMMIT and last[id(held)] != number:
                continue  # The last commit includes the earlier ones.
            if what is Work.PIN:
                assert self._handovers is not None
                sent.append((what, held, self._handovers.pin(batch, held.text)))
            elif what is Work.FREE:
                if not sequence.freed:
                    sent.append((what, held, batch.free(sequence)))
            elif what is Work.RESERVE:
                held.reserving = False
                if (missing := blocks - self._reserved(held)) > 0:
                    sent.append((what, held, batch.reserve(sequence, missing * self._size)))
            else:
                end = blocks * self._size
                sent.append((what, held, batch.commit(sequence, held.text.tokens[sequence.token_count:end], computed=end)))
        try:
            batch.send()
        except PagodaError as error:
            self._fail(client, error)
            # A single refusal: a sequence that is not freed would stay forever.
            if self._link.client is client:
                self._work.extend(row for row in work if row[0] is Work.FREE)
            return
        for what, held, pending in sent:
            if what is Work.COMMIT:
                held.cached = held.sequence.computed_tokens // self._size
            if pending.error is None:
                continue
            if what is not Work.PIN:
                self._stop_saving(held)
            if not isinstance(pending.error, (Exhausted, KvLost)):
                log.warning("request %s: %s failed: %s", held.text.request_id, what.name, pending.error)

    def _fail(self, client: Client, error: PagodaError) -> None:
        """Handles a call that failed as a whole. If the daemon refuses one request, later ones can
        still succeed."""
        if isinstance(error, (Unavailable, TimedOut, SessionGone, Unauthenticated, PermissionDenied)) or is_broken(error):
            self._link.lost(client, error)
        else:
            log.warning("a call failed: %s", error)
