"""An engine like vLLM without a model: its own paged memory by groups, async loads, chunks,
preemption. Each byte of KV is a function of all tokens up to it, so a step that reads a wrong byte
finds it."""

import collections
import hashlib
import pickle

import numpy as np
import pagoda
from pagoda.connector import (ArrayMover, HostMover, LayerPages, Link, Mark, PageLayout, RankPages, Scheduled, SchedulerSide, Stream, Text,
                              WorkerSide)

CHUNK_BYTES = 8  # The bytes of a token in one layer and one head.
NULL = 0


class _LateMark(Mark):
    def __init__(self):
        self.reached = False

    def is_reached(self):
        return self.reached


class LateStream(Stream):
    """LateMover.run does the work later, in order, and after the marks that it waits for."""

    def __init__(self):
        self._work = collections.deque()

    def do(self, what):
        self._work.append(what)

    def mark(self):
        mark = _LateMark()
        self.do(lambda: setattr(mark, "reached", True))
        return mark

    def wait(self, mark):
        self.do(mark)

    def run_one(self):
        """Whether something was done."""
        if not self._work or isinstance(self._work[0], _LateMark) and not self._work[0].reached:
            return False
        what = self._work.popleft()
        if not isinstance(what, _LateMark):
            what()
        return True


class LateMover(ArrayMover):
    """A device: copies and kernels happen at random times, in any order that the streams allow."""

    def __init__(self, rng):
        self.compute, self.loads, self.saves = LateStream(), LateStream(), LateStream()
        self._rng = rng

    def view(self, memory):
        return memory

    def register(self, pool):
        return pool

    def copy(self, stream, target, source, convert=None):
        stream.do(lambda: target.__setitem__(..., convert(source) if convert else source))

    def run(self, most):
        """Does at most so much, of streams that take turns at random."""
        for _ in range(self._rng.randrange(most + 1)):
            streams = [self.compute, self.loads, self.saves]
            self._rng.shuffle(streams)
            if not any(stream.run_one() for stream in streams):
                return

    def close(self):
        while any(stream.run_one() for stream in (self.compute, self.loads, self.saves)):
            pass


class Rank:
    """A worker: its memory, and its side of the connector. Each stage has `engine.ranks`
    workers."""

    def __init__(self, engine, number):
        self.engine, self.number = engine, number
        rank, shards = number % engine.ranks, engine.ranks // engine.replicas
        heads = engine.heads // shards
        self.first_head = rank // engine.replicas * heads
        self.memory, self.layers = {}, {}
        for layer in engine.layers_of_stage(self.stage):
            group = engine.group_of_layer[layer]
            pages = LayerPages(f"layer.{layer}", group, engine.windows[group], 1, heads, engine.block_sizes[group] * CHUNK_BYTES,
                               shard=rank // engine.replicas, shards=shards, is_writer=rank % engine.replicas == 0)
            self.layers[layer] = pages
            self.memory[layer] = self.make_memory((engine.blocks, 1, heads, engine.block_sizes[group] * CHUNK_BYTES))
        self.mover = engine.make_mover()
        self.side = WorkerSide(number, self.mover, timeout=engine.timeout)
        self.side.register({pages: self.memory[layer] for layer, pages in self.layers.items()})

    def make_memory(self, shape):
        """Bytes, zeros: of a layer."""
        return np.zeros(shape, np.uint8)

    @property
    def stage(self):
        return self.number // self.engine.ranks

    def kernel(self, what):
        """Runs as the engine's kernels do: now, or when the device comes to it."""
        if isinstance(self.mover, LateMover):
            self.mover.compute.do(what)
        else:
            what()

    def pages(self):
        return RankPages(self.stage, tuple(self.layers.values()), "toy")


def prompts(rng, count, longest=120):
    """Prompts that often begin alike."""
    roots = [[rng.randrange(1000) for _ in range(longest // 2)] for _ in range(3)]
    return [rng.choice(roots)[:rng.randrange(longest // 2)] + [rng.randrange(1000) for _ in range(rng.randrange(1, longest // 2))]
            for _ in range(count)]


class Request:
    def __init__(self, number, tokens):
        self.id = f"request-{number}"
        self.tokens = tokens
        self.tables = None
        self.computed = 0
        self.loading = False
        self.resumed = False
        self.cached = 0
        self.source, self.source_tokens = "", 0  # The daemon that has its prefix.


class ToyEngine:
    rank_type = Rank

    def __init__(self, endpoint, *, windows=(0,), block_sizes=None, layers_per_group=2, heads=2, ranks=1, replicas=1, stages=1, blocks=400,
                 chunk=16, cache="toy", host="64KiB", disk=None, timeout=10.0, mover=HostMover, reuses_last=False,
                 **side):
        """`ranks`: of tensor parallelism, in each of `stages`. `replicas` neighbours have the same
        heads, as in latent attention. `mover` makes each rank's mover. `reuses_last`: the engine
        takes the block that was freed last first. `side`: more for the SchedulerSide."""
        self.make_mover, self.reuses_last, self.timeout = mover, reuses_last, timeout
        block_sizes = block_sizes or (4,) * len(windows)
        self.windows, self.block_sizes, self.heads, self.ranks, self.blocks, self.chunk = windows, block_sizes, heads, ranks, blocks, chunk
        self.replicas, self.stages = replicas, stages
        self.group_of_layer = [group for group in range(len(windows)) for _ in range(layers_per_group)]
        self.free = list(range(1, blocks))
        self.workers = [self.rank_type(self, number) for number in range(stages * ranks)]
        self.layout = PageLayout.merge([worker.pages() for worker in self.workers], block_sizes)

        def connect():
            pagoda.open_cache(endpoint, cache, identity=pagoda.CacheIdentity("org/toy"), layers=self.layout.cache_layers(),
                              tokens_per_block=self.layout.tokens_per_block, host=host, disk=disk, timeout=timeout)
            return pagoda.connect(endpoint, cache=cache, name="toy", timeout=timeout)

        self.link = Link(connect, name="toy", retry=0.05)
        self.side = SchedulerSide(self.link, self.layout, ranks=len(self.workers), **side)
        self.running, self.counts = {}, 0
        self.hit_tokens = self.failed_loads = self.loaded_requests = 0
        self.before_step = lambda: None  # Called between plan and copies.
        self._values = {}
        self._arrived, self._bad = collections.Counter(), set()  # By request: how many ranks have loaded it. And the requests that a rank could not load.

    def layers_of_stage(self, stage):
        """The stage's equal share of the model's layers, in their order."""
        layers = len(self.group_of_layer)
        return range(stage * layers // self.stages, (stage + 1) * layers // self.stages)

    # --- The expected KV ---

    def value(self, tokens, position, layer, head):
        key = (hash(tuple(tokens[:position + 1])), position, layer, head)
        if key not in self._values:
            self._values[key] = hashlib.blake2b(repr((tokens[:position + 1], layer, head)).encode(), digest_size=CHUNK_BYTES).digest()
        return self._values[key]

    def compute(self, request, start, end):
        """A step's kernels: they read the computed KV and write the rest."""
        tables, tokens = [list(table) for table in request.tables], list(request.tokens)
        for worker in self.workers:
            worker.kernel(lambda worker=worker: self._compute(worker, request.id, tokens, tables, start, end))

    def _compute(self, worker, name, tokens, tables, start, end):
        for layer, pages in worker.layers.items():
            group = pages.group
            size, window = self.block_sizes[group], self.windows[group]
            for position in range(max(start - window + 1, 0) if window else 0, end):
                block = tables[group][position // size]
                assert block != NULL
                at = position % size * CHUNK_BYTES
                for head in range(pages.heads):
                    should = self.value(tokens, position, layer, worker.first_head + head)
                    there = worker.memory[layer][block, 0, head, at:at + CHUNK_BYTES]
                    if position >= start:
                        there[:] = np.frombuffer(should, np.uint8)
                    assert there.tobytes() == should, f"{name}: wrong KV of token {position} of {start} in layer {layer}"

    # --- The scheduler ---

    def add(self, tokens):
        self.counts += 1
        request = Request(self.counts, list(tokens))
        self.running[request.id] = request
        return request

    def text(self, request):
        return Text(request.id, request.tokens, source=request.source, source_tokens=request.source_tokens)

    def take_blocks(self, request, end):
        """Tables up to `end` tokens. Blocks wholly behind a window are null. Returns the new
        blocks, or None if there are too few."""
        passed = [max(request.computed - window + 1, 0) // size if window else 0 for window, size in zip(self.windows, self.block_sizes)]
        tables = request.tables or [[] for _ in self.windows]
        new = [[] for _ in self.windows]
        needed = sum(max(-(-end // size) - max(len(table), skip), 0) for table, size, skip in zip(tables, self.block_sizes, passed))
        if needed > len(self.free):
            return None
        for group, size in enumerate(self.block_sizes):
            for index in range(len(tables[group]), -(-end // size)):
                new[group].append(NULL if index < passed[group] else self.free.pop(-1 if self.reuses_last else 0))
            tables[group] += new[group]
            for index in range(min(passed[group], len(tables[group]))):  # The blocks that the window has passed.
                if tables[group][index] != NULL:
                    self.free.append(tables[group][index])
                    tables[group][index] = NULL
        request.tables = tables
        return new

    def give_back(self, request):
        for table in request.tables or ():
            self.free += [block for block in table if block != NULL]
        request.tables, request.computed = None, 0

    def preempt(self, request):
        assert not request.loading
        self.give_back(request)
        request.resumed = True

    def end(self, request, hands_over=False):
        """Returns where another machine finds its prefix."""
        assert not request.loading
        handover = self.side.finished(request.id, hands_over=hands_over)
        self.give_back(request)
        del self.running[request.id]
        return handover

    def step(self):
        """Admits, loads, computes a chunk of each running request, and saves. Requests that cannot
        run wait. If all wait for blocks that others hold, the last one gives its blocks back."""
        rows, new_blocks = self._schedule_all()
        plan = pickle.loads(pickle.dumps(self.side.plan([row for _, row in rows], new_blocks)))
        self.before_step()
        for worker in self.workers:
            worker.side.begin(plan, self.layout)
        for request, row in rows:
            self.compute(request, request.computed, row.computed)
            request.computed = row.computed
        self._load_and_save(plan)
        self._end_loads()
        self._report()
        for worker in self.workers:
            if isinstance(worker.mover, LateMover):
                worker.mover.run(150)
        return plan

    def _schedule_all(self):
        """The rows of the step, each with its request, and their new blocks."""
        rows, new_blocks, is_short = [], set(), False
        for request in self.running.values():
            if request.loading:
                continue
            if request.tables is None:
                self._admit(request, rows, new_blocks)
            elif request.computed < len(request.tokens):
                anew = request.cached == request.computed and request.cached > 0
                new = self.take_blocks(request, min(len(request.tokens), request.computed + self.chunk))
                if new is not None:
                    self._schedule(request, request.tables if anew else new, anew, rows, new_blocks)
                else:
                    is_short = True
        if is_short and not rows and not any(request.loading for request in self.running.values()):
            self.preempt([request for request in self.running.values() if request.tables is not None][-1])
        return rows, new_blocks

    def _admit(self, request, rows, new_blocks):
        """Begins to load what is cached of it, or schedules its first chunk if nothing is. It waits
        if there are too few blocks, or while the match is not known."""
        external = self.side.match(self.text(request), 0)
        if external is None:
            return
        assert external % self.layout.tokens_per_block == 0 and external < len(request.tokens)
        if external:
            request.computed = external
            if self.take_blocks(request, external) is None:
                request.computed = 0
                return
            self.side.allocated(request.id, request.tables, external)
            request.loading, request.cached = True, external
            return
        new = self.take_blocks(request, min(len(request.tokens), self.chunk))
        if new is None:
            return
        self.side.allocated(request.id, request.tables, 0)
        self._schedule(request, new, True, rows, new_blocks)

    def _schedule(self, request, new, anew, rows, new_blocks):
        end = min(len(request.tokens), request.computed + self.chunk)
        rows.append((request, Scheduled(request.id, [list(blocks) for blocks in new], anew or request.resumed, end)))
        request.resumed = False
        for blocks in new:
            new_blocks.update(blocks)

    def _load_and_save(self, plan):
        for worker in self.workers:
            worker.side.load(plan)
            worker.side.save(plan)
            received, bad = worker.side.take_loaded()
            self._arrived.update(received)
            self._bad |= bad

    def _end_loads(self):
        """Ends the loads of requests that all ranks have loaded, or failed to load."""
        loaded = {request_id for request_id, ranks in self._arrived.items() if ranks == len(self.workers)}
        failed = loaded & self._bad
        for request_id in loaded:
            del self._arrived[request_id]
            self._bad.discard(request_id)
            request = self.running[request_id]
            request.loading = False
            self.loaded_requests += 1
            if request_id in failed:
                self.failed_loads += 1
                self.give_back(request)
                request.cached = 0
            else:
                self.hit_tokens += request.cached
        if failed:
            self.side.loads_failed(failed)

    def _report(self):
        report = None
        for worker in self.workers:
            report = worker.side.report() if report is None else report.merge(worker.side.report())
        self.side.report(report)

    def run(self, prompts, generate=0, steps=1000):
        """Runs the prompts to their ends, each with this many generated tokens. Returns how many
        tokens of each came from the cache."""
        requests = [self.add(prompt) for prompt in prompts]
        goals = {request.id: len(request.tokens) + generate for request in requests}
        for _ in range(steps):
            if not self.running:
                return [request.cached for request in requests]
            self.step()
            for request in list(self.running.values()):
                if request.tables is None or request.loading or request.computed < len(request.tokens):
                    continue
                if len(request.tokens) < goals[request.id]:
                    request.tokens.append(hash(tuple(request.tokens[-8:])) % 1000)
                else:
                    self.end(request)
        raise AssertionError(f"{len(self.running)} requests do not end")

    def step_at_random(self, rng, asked, requests):
        """A step with so many requests. It preempts, ends and continues some of them."""
        while len(self.running) < requests:
            self.add(rng.choice(asked))
        self.step()
        for request in list(self.running.values()):
            if request.tables is None or request.loading:
                continue
            if rng.random() < 0.05:
                self.preempt(request)
            elif request.computed == len(request.tokens):
                if rng.random() < 0.5:
                    self.end(request)
                else:
                    request.tokens.append(hash(tuple(request.tokens[-8:])) % 1000)

    def end_all(self):
        """Ends all requests, after their loads."""
        while self.running:
            self.step()
            for request in list(self.running.values()):
                if not request.loading:
                    self.end(request)

    def close(self):
        self.side.close()
        self.link.close()
        for worker in self.workers:
            worker.side.close()
