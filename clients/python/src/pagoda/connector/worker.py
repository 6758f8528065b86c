"""The workers' side of a connector: copies blocks between the engine's memory and the slots, as a
StepPlan demands.

The order of copies and kernels, for engines with streams:
* A save begins after the kernels of its step. A load begins after the kernels of the steps before
  its own.
* If the requests of a step get blocks that a save still reads, the step begins after that save.
So on a GPU only a step that writes blocks that a save still reads waits for a copy. On the CPU the
worker's own thread copies, after the step's kernels.
"""

import concurrent.futures
import dataclasses
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from pagoda.connector.movers import Codec, Mark, Mover, Places
from pagoda.connector.pages import LayerPages, PageLayout
from pagoda.connector.plan import BlockCopies, StepPlan, StepReport
from pagoda.errors import PagodaError
from pagoda.connector.populate import populate
from pagoda.pools import Pool, map_pools
from pagoda._map_socket import READ, MapSocket, SessionRef
from pagoda.values import Tier

log = logging.getLogger("pagoda.connector")

MAP_AGAIN_SECONDS = 5.0


@dataclasses.dataclass
class Moved:
    """Counts since the last call."""

    loaded_blocks: int = 0
    loaded_bytes: int = 0
    saved_blocks: int = 0
    saved_bytes: int = 0
    load_seconds: float = 0.0
    """Time of this thread. On a GPU it is the time to begin the copies, otherwise of the copies."""
    save_seconds: float = 0.0


@dataclasses.dataclass
class _Job:
    step: int
    done: Mark
    request_id: str = ""  # The request of a load.
    mapping: "_Mapping | None" = None  # The mapping that a load read; None if it failed.
    sources: frozenset[int] = frozenset()  # The engine's blocks of a save.


class _Mapping:
    """The pools of a session, by layer."""

    def __init__(self, session: bytes, layout: PageLayout, own: Mapping[str, LayerPages], mover: Mover, timeout: float) -> None:
        self.session = session
        self.layers: dict[str, Places] = {}
        self._mover = mover
        self._socket = MapSocket(SessionRef.from_bytes(session), timeout=timeout)
        self._stopped = threading.Event()
        self._registered: list[Any] = []
        try:
            self._map(layout, own, timeout)
        except BaseException:
            self.close()
            raise

    def _map(self, layout: PageLayout, own: Mapping[str, LayerPages], timeout: float) -> None:
        places: dict[int, tuple[Any, int]] = {}
        for pool in map_pools(self.session, tier=Tier.PRIMARY, timeout=timeout):
            registered = self._mover.register(pool.writable_array)
            self._registered.append(registered)
            if self._is_reserved(pool):
                threading.Thread(target=populate, args=(pool.writable_array, self._stopped), name="pagoda-populate", daemon=True).start()
            for place, layer in enumerate(pool.layers):
                places[layer] = (registered, place)
        for index, (name, _, size) in enumerate(layout.layers):
            if name not in own:
                continue
            pages, (pool_bytes, place) = own[name], places[index]
            per_slot = layout.blocks_per_slot[pages.group]
            shape = (pool_bytes.shape[0], per_slot * pages.pieces, pages.shards * pages.heads, pages.slot_chunk_bytes)
            # A view, because the last axis is contiguous.
            whole = pool_bytes[:, place, :size].reshape(shape)
            first = pages.shard * pages.heads
            self.layers[name] = Places(whole[:, :, first:first + pages.heads, :], pages.pieces, per_slot)

    def _is_reserved(self, pool: Pool) -> bool:
        """Whether the daemon has allocated all of the pool's memory. Then mapping it ahead
        allocates nothing."""
        descriptor = self._socket.open(pool.window_size, pool.pool_index, pool.tier, READ)
        try:
            memory = os.fstat(descriptor)
        finally:
            os.close(descriptor)
        return memory.st_blocks * 512 >= memory.st_size

    def close(self) -> None:
        """Closes the mapping after its copies."""
        self._stopped.set()
        for registered in self._registered:
            self._mover.unregister(registered)
        self._registered.clear()

    def is_alive(self) -> bool:
        """Whether the session is alive. If it is, the slots that it holds were not given to others.
        Takes one request to the daemon."""
        try:
            self._socket.describe()
        except PagodaError as error:
            log.warning("loads are dropped, because the session cannot be confirmed: %s", error)
            return False
        return True


class _Opening:
    """A mapping that a thread makes, because preparing much memory for a GPU's copies takes
    seconds."""

    def __init__(self, session: bytes, make: Callable[[], _Mapping]) -> None:
        self.session = session
        self._made: concurrent.futures.Future[_Mapping] = concurrent.futures.Future()
        self._make = make
        threading.Thread(target=self._run, name="pagoda-map", daemon=True).start()

    def _run(self) -> None:
        try:
            self._made.set_result(self._make())
        except BaseException as error:
            self._made.set_exception(error)

    def wait(self, seconds: float) -> None:
        concurrent.futures.wait([self._made], seconds)

    def result(self) -> _Mapping | None:
        """None: not ready yet. Raises the error of its making."""
        return self._made.result() if self._made.done() else None

    def abandon(self) -> None:
        """Closes the mapping, at once or when it is made."""
        self._made.add_done_callback(lambda made: made.result().close() if made.exception() is None else None)


class WorkerSide:
    """Not thread-safe: only for the worker's own thread."""

    def __init__(self, rank: int, mover: Mover, *, timeout: float = 1.0, steps_wait_for_saves: bool = False,
                 codec: Codec | None = None) -> None:
        """`rank`: identifies this worker. `timeout`: seconds for a request to the daemon.
        `steps_wait_for_saves`: for an engine that writes to new blocks before it calls `begin`.
        Such an engine must not get a block that a save still reads. `codec`: for the layers whose
        `stored_chunk_bytes` is not 0."""
        self._rank = rank
        self._steps_wait = steps_wait_for_saves
        self._mover = mover
        self._codec = codec
        self._timeout = timeout
        self._own: dict[str, LayerPages] = {}
        self._memory: dict[str, Places] = {}
        self._layout: PageLayout | None = None
        self._mapping: _Mapping | None = None
        self._opening: _Opening | None = None
        self._refused: tuple[bytes | None, float] | None = None
        self._unsaved = 0  # The step whose saves have not begun yet.
        self._saving: list[_Job] = []
        self._loading: list[_Job] = []
        self._failed: set[str] = set()
        self._failed_saves: set[int] = set()
        self._step = 0
        self._before: Mark | None = None
        self.moved = Moved()

    def register(self, layers: Mapping[LayerPages, Any]) -> None:
        """Registers the engine's memory of each of this worker's layers, in the form of
        `Mover.view`'s argument."""
        self._own = {pages.name: pages for pages in layers}
        self._memory = {pages.name: Places(self._mover.view(memory), pages.pieces) for pages, memory in layers.items()}

    def begin(self, plan: StepPlan, layout: PageLayout) -> None:
        """Call it before the step's kernels."""
        if self._unsaved:  # The engine did not call `save` in the previous step.
            self._failed_saves.add(self._unsaved)
        self._unsaved = plan.step if plan.saves else 0
        self._step = plan.step
        self._layout = layout
        for job in self._saving:
            if job.sources & plan.new_blocks:
                self._mover.compute.wait(job.done)
        self._before = self._mover.compute.mark()
        if plan.loads or plan.saves:
            self._map(plan)

    def load(self, plan: StepPlan) -> None:
        """Begins the step's loads. The step itself does not need them."""
        self._failed |= plan.failed_loads
        if not plan.loads:
            return
        if self._mapping is None or self._mapping.session != plan.session:
            self._failed |= plan.loads.keys()
            return
        assert self._before is not None
        self._mover.loads.wait(self._before)
        started = time.monotonic()
        for request_id, copies in plan.loads.items():
            mapping = self._mapping if self._copied(copies, into_slots=False) else None
            self._loading.append(_Job(plan.step, self._mover.loads.mark(), request_id, mapping))
        self.moved.load_seconds += time.monotonic() - started

    def save(self, plan: StepPlan) -> None:
        """Begins the step's saves. Call it after the step's kernels have been given to the
        device."""
        if not plan.saves:
            return
        self._unsaved = 0
        # The session's pools could not be mapped.
        if self._mapping is None or self._mapping.session != plan.session:
            self._failed_saves.add(plan.step)
            return
        self._mover.saves.wait(self._mover.compute.mark())
        started = time.monotonic()
        if not self._copied(plan.saves, into_slots=True):
            self._failed_saves.add(plan.step)
        done = self._mover.saves.mark()
        self.moved.save_seconds += time.monotonic() - started
        self._saving.append(_Job(plan.step, done, sources=frozenset(plan.saves.all_blocks())))
        if self._steps_wait:
            self._mover.compute.wait(self._saving[-1].done)

    def take_loaded(self) -> tuple[set[str], set[str]]:
        """Returns the requests whose loads have ended, and those among them whose blocks have no
        KV."""
        done = [job for job in self._loading if job.done.is_reached()]
        failed, self._failed = self._failed, set()
        if done:
            self._loading = [job for job in self._loading if job not in done]
            # After the copies: the slots that they read were held until now.
            mappings = {id(job.mapping): job.mapping for job in done}
            alive = {number for number, mapping in mappings.items() if mapping is not None and mapping.is_alive()}
            failed |= {job.request_id for job in done if id(job.mapping) not in alive}
        return {job.request_id for job in done} | failed, failed

    def report(self) -> StepReport:
        """Returns the report for the scheduler's side. It can be called before the step's `save`;
        the step then counts as running."""
        self._saving = [job for job in self._saving if not job.done.is_reached()]
        open_steps = [job.step for job in (*self._saving, *self._loading)] + ([self._unsaved] if self._unsaved else [])
        failed, self._failed_saves = self._failed_saves, set()
        return StepReport({self._rank: min(open_steps) - 1 if open_steps else self._step}, failed)

    def take_moved(self) -> Moved:
        moved, self.moved = self.moved, Moved()
        return moved

    def close(self) -> None:
        self._unmap()
        self._mover.close()

    def _unmap(self) -> None:
        if self._opening is not None:
            self._opening.abandon()
        self._mapping = self._opening = None

    def _map(self, plan: StepPlan) -> None:
        """Maps the pools of a new session. If that takes longer than the timeout, goes on without
        them: nothing is loaded or saved until they are mapped."""
        if self._mapping is not None and self._mapping.session == plan.session:
            return
        if self._opening is None or self._opening.session != plan.session:
            if plan.session is None or self._refused is not None and self._refused[0] == plan.session and time.monotonic() < self._refused[1]:
                return
            self._unmap()
            assert self._layout is not None
            layout, own, mover, timeout = self._layout, self._own, self._mover, self._timeout
            session = plan.session
            self._opening = _Opening(session, lambda: _Mapping(session, layout, own, mover, timeout))
            self._opening.wait(timeout)
        try:
            self._mapping = self._opening.result()
        except Exception as error:  # After any error the engine computes without the cache.
            self._opening = None
            # Do not retry in each step.
            self._refused = plan.session, time.monotonic() + MAP_AGAIN_SECONDS
            log.error("the daemon's memory is not mapped, so no KV is loaded or saved: %s: %s", type(error).__name__, error)

    def _copied(self, copies: BlockCopies, *, into_slots: bool) -> bool:
        """Whether all copies have begun. If not, some may have."""
        stream = self._mover.saves if into_slots else self._mover.loads
        try:
            self._copy(copies, into_slots=into_slots)
            stream.begin()
        # For example, too little memory to convert them. The engine computes, and stores nothing.
        except Exception as error:
            log.error("KV is not %s: %s: %s", "saved" if into_slots else "loaded", type(error).__name__, error)
            stream.drop()
            return False
        return True

    def _copy(self, copies: BlockCopies, *, into_slots: bool) -> None:
        assert self._mapping is not None and self._layout is not None
        mover = self._mover
        moved_bytes = moved_blocks = 0
        for name, pages in self._own.items():
            blocks, parts = copies.blocks[pages.group], copies.parts[pages.group]
            if not blocks or (into_slots and not pages.is_writer):
                continue
            memory, slots = self._memory[name], self._mapping.layers[name]
            encode, decode = (self._codec.encode, self._codec.decode) if self._codec and pages.stored_chunk_bytes else (None, None)
            if into_slots:
                mover.copy_blocks(mover.saves, slots, parts, memory, blocks, encode)
            else:
                mover.copy_blocks(mover.loads, memory, blocks, slots, parts, decode)
            moved_bytes += len(blocks) * pages.block_bytes
            moved_blocks += len(blocks)
        if into_slots:
            self.moved.saved_blocks += moved_blocks
            self.moved.saved_bytes += moved_bytes
        else:
            self.moved.loaded_blocks += moved_blocks
            self.moved.loaded_bytes += moved_bytes
