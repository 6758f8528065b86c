"""The calls of vLLM's KV connector interface, on this package's API, around a toy engine that has a paged KV memory of its own.

    python3 connector.py [ENDPOINT]    for a cache with one attention window and one pool

Needs no vLLM: requests, block ids and "layers" are plain values here. README.md says what a real connector has besides.
"""

import dataclasses
import sys

import numpy as np
import pagoda

NAMESPACE = pagoda.Namespace(cache_salt="connector")


@dataclasses.dataclass
class Request:
    request_id: str
    tokens: list[int]


@dataclasses.dataclass(frozen=True)
class Copy:
    """A block of the engine's memory, and the slot of the cache that holds, or will hold, the same tokens."""

    engine_block: int
    slot: int


@dataclasses.dataclass
class Metadata:
    """What the scheduler's side tells the workers' side with each step."""

    loads: list[Copy] = dataclasses.field(default_factory=list)
    saves: list[Copy] = dataclasses.field(default_factory=list)


class SchedulerSide:
    """Owns the session and the sequences: one for each request, which holds what it matched."""

    def __init__(self, client: pagoda.Client) -> None:
        self._client = client
        self._size = client.cache.tokens_per_block
        self._sequences: dict[str, pagoda.Sequence] = {}
        self._engine_blocks: dict[str, list[int]] = {}
        self._loads: dict[str, range] = {}
        self._saved: dict[str, int] = {}  # Blocks of a request that the cache has, or will have after this step.

    def get_num_new_matched_tokens(self, request: Request, num_computed_tokens: int) -> tuple[int, bool]:
        """May come again for a request: the sequence is opened once, and holds its match from then on."""
        if request.request_id not in self._sequences:
            try:
                self._sequences[request.request_id] = self._client.sequence(request.tokens, namespace=NAMESPACE)
            except pagoda.Exhausted:
                return 0, False
        sequence = self._sequences[request.request_id]
        whole = sequence.matched_tokens // self._size * self._size
        still_moving = sequence.ready_ticket > self._client.completed_ticket
        new = max(whole - num_computed_tokens, 0)
        return new, still_moving and new > 0

    def update_state_after_alloc(self, request: Request, engine_blocks: list[int], num_external_tokens: int) -> None:
        self._engine_blocks[request.request_id] = engine_blocks
        if sequence := self._sequences.get(request.request_id):
            sequence.wait_ready()  # A real connector looks at completed_ticket in the next step instead.
            whole = sequence.matched_tokens // self._size
            self._loads[request.request_id] = range(whole - num_external_tokens // self._size, whole)
            self._saved[request.request_id] = whole

    def build_connector_meta(self, scheduled: list[tuple[Request, int]]) -> Metadata:
        """`scheduled`: requests, and how many tokens each will have computed after this step."""
        metadata = Metadata()
        with self._client.batch() as batch:
            for request, computed in scheduled:
                sequence = self._sequences.get(request.request_id)
                if sequence is not None and computed > sequence.token_count:
                    batch.append(sequence, request.tokens[sequence.token_count:computed])
        for request, computed in scheduled:
            sequence = self._sequences.get(request.request_id)
            if sequence is None:
                continue
            slots, engine_blocks = sequence.table.slots, self._engine_blocks[request.request_id]
            new = range(self._saved[request.request_id], computed // self._size)
            metadata.loads += [Copy(engine_blocks[i], int(slots[i])) for i in self._loads.pop(request.request_id, ())]
            metadata.saves += [Copy(engine_blocks[i], int(slots[i])) for i in new]
            self._saved[request.request_id] = max(new.stop, new.start)
        return metadata

    def update_connector_output(self) -> None:
        """All workers have saved this step's blocks: now they are everybody's."""
        batch = self._client.batch()
        commits = {name: batch.commit(sequence, computed=self._saved[name] * self._size)
                   for name, sequence in self._sequences.items() if self._saved[name] * self._size > sequence.computed_tokens}
        batch.send()
        for name, commit in commits.items():
            if isinstance(commit.error, pagoda.KvLost):  # What the cache had is gone; the engine has its own copy.
                self._sequences.pop(name).free()
            else:
                commit.result()

    def request_finished(self, request: Request, engine_blocks: list[int]) -> tuple[bool, None]:
        """Nothing is under way, for saves end with their step: the engine may free its blocks."""
        if sequence := self._sequences.pop(request.request_id, None):
            sequence.free()
        return False, None


class WorkerSide:
    """Moves bytes between the engine's memory and the mapped pool. It needs no session of its own, only the pool."""

    def __init__(self, pool: pagoda.Pool, kv_caches: dict[str, np.ndarray]) -> None:
        """`kv_caches`: each layer's memory, [K or V, block, token of the block, head, dimension]."""
        self._pool = pool
        self._kv_caches = kv_caches
        self._layers = {name: index for index, name in enumerate(kv_caches)}

    def start_load_kv(self, metadata: Metadata) -> None:
        for name, memory in self._kv_caches.items():
            for copy in metadata.loads:
                memory[:, copy.engine_block] = self._pool.array[copy.slot, self._layers[name]].swapaxes(1, 2)

    def wait_for_layer_load(self, layer_name: str) -> None:
        """These copies are done when start_load_kv returns; on a GPU this waits for the layer's copies."""

    def save_kv_layer(self, layer_name: str, kv_layer: np.ndarray, metadata: Metadata) -> None:
        for copy in metadata.saves:
            self._pool.writable_array[copy.slot, self._layers[layer_name]] = kv_layer[:, copy.engine_block].swapaxes(1, 2)

    def wait_for_save(self) -> None:
        """These copies are done when save_kv_layer returns."""

    def get_finished(self, finished_request_ids: set[str]) -> tuple[None, None]:
        return None, None


class ToyEngine:
    """Prefills and decodes like an engine, with a number in the place of each token's K and V; checks that what it loads is what it would
    have computed."""

    def __init__(self, client: pagoda.Client) -> None:
        pool = client.pools(tier=pagoda.Tier.PRIMARY)[0]
        _, layers, kv_factor, heads, self._size, head_dim = pool.shape
        self._memory = {f"layer.{i}": np.zeros((kv_factor, 64, self._size, heads, head_dim), pool.array.dtype) for i in range(layers)}
        self._free = list(range(64))
        self._scheduler = SchedulerSide(client)
        self._worker = WorkerSide(pool, self._memory)

    def run(self, request: Request, decode: list[int]) -> int:
        """Returns how many tokens of the prompt were loaded instead of computed."""
        loaded, _ = self._scheduler.get_num_new_matched_tokens(request, 0)
        blocks = [self._free.pop() for _ in range(-(-(len(request.tokens) + len(decode)) // self._size))]
        self._scheduler.update_state_after_alloc(request, blocks, loaded)
        computed = loaded
        for token in [None, *decode]:  # The prompt's step, then one for each further token.
            request.tokens += [] if token is None else [token]
            metadata = self._scheduler.build_connector_meta([(request, len(request.tokens))])
            self._worker.start_load_kv(metadata)
            for name, memory in self._memory.items():
                self._worker.wait_for_layer_load(name)
                values = np.cumsum(np.array(request.tokens) % 5)
                for t in range(len(request.tokens)):
                    here = memory[:, blocks[t // self._size], t % self._size]
                    if t >= computed:
                        here[:] = values[t]
                    assert (here == values[t]).all()
                self._worker.save_kv_layer(name, memory, metadata)
            self._worker.wait_for_save()
            self._scheduler.update_connector_output()
            computed = len(request.tokens)
        self._scheduler.request_finished(request, blocks)
        self._worker.get_finished({request.request_id})
        self._free += blocks
        return loaded


def main() -> None:
    with pagoda.connect(sys.argv[1] if len(sys.argv) > 1 else None, name="connector") as client:
        client.invalidate([], namespace=NAMESPACE)
        engine = ToyEngine(client)
        history = list(range(100, 150))
        for turn in range(3):
            request = Request(f"turn {turn}", history)
            prompt_tokens = len(history)
            loaded = engine.run(request, decode=list(range(500, 520)))
            print(f"{request.request_id}: {loaded} of {prompt_tokens} prompt tokens loaded")
            history = request.tokens + [turn] * 10


if __name__ == "__main__":
    main()
