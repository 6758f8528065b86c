"""An engine with its own paged memory, and Pagoda as its cache: the work of a connector in a
hundred lines.

    pagodad --memory 64MiB &
    python3 connector.py [ENDPOINT]

pagoda.connector does the work: it holds matched blocks, reserves slots ahead, commits saved blocks,
and survives a daemon that goes away. The engine provides tokens and block tables. The "model" here
writes a sum of the tokens instead of K and V.
"""

import sys

import numpy as np
import pagoda
from pagoda.connector import HostMover, LayerPages, Link, PageLayout, RankPages, Scheduled, SchedulerSide, Text, WorkerSide

ENDPOINT = sys.argv[1] if len(sys.argv) > 1 else None
BLOCK, LAYERS, BLOCKS = 16, 2, 64
# One group of layers with full attention. A block of a layer is one piece of one head of 16 int64.
PAGES = [LayerPages(f"layer.{i}", group=0, window=0, pieces=1, heads=1, chunk_bytes=BLOCK * 8, shard=0, shards=1, is_writer=True)
         for i in range(LAYERS)]
LAYOUT = PageLayout.merge([RankPages(stage=0, layers=tuple(PAGES), packing="sums-1")], block_sizes=[BLOCK])


def connect():
    pagoda.open_cache(ENDPOINT, "connector", identity=pagoda.CacheIdentity("org/sums", layout="sums-1"), layers=LAYOUT.cache_layers(),
                      tokens_per_block=BLOCK, host="1MiB")
    return pagoda.connect(ENDPOINT, cache="connector", name="connector")


class Engine:
    def __init__(self) -> None:
        self.link = Link(connect, name="example")
        if not self.link.wait(10):
            sys.exit("no daemon, or it refuses the cache: its reason is above")
        self.scheduler = SchedulerSide(self.link, LAYOUT, ranks=1)
        self.worker = WorkerSide(0, HostMover())
        self.memory = [np.zeros((BLOCKS, BLOCK), np.int64) for _ in range(LAYERS)]
        self.worker.register({pages: memory.view(np.uint8).reshape(BLOCKS, 1, 1, -1) for pages, memory in zip(PAGES, self.memory)})
        self.free = list(range(1, BLOCKS))  # Block 0 is the null block.

    def step(self, scheduled: list[Scheduled], compute=lambda: None) -> set[str]:
        """Runs one step: the kernels run between `begin` and `save`. Returns the requests whose
        loads have succeeded."""
        new_blocks = {block for row in scheduled for table in row.new_blocks or () for block in table}
        plan = self.scheduler.plan(scheduled, new_blocks)
        self.worker.begin(plan, LAYOUT)
        compute()
        self.worker.load(plan)
        self.worker.save(plan)
        loaded, failed = self.worker.take_loaded()
        if failed:
            self.scheduler.loads_failed(failed)
        self.scheduler.report(self.worker.report())
        return loaded - failed

    def run(self, name: str, tokens: list[int]) -> int:
        """Prefills the tokens. Returns how many of them were loaded instead of computed."""
        loaded = self.scheduler.match(Text(name, tokens), 0) or 0
        table = [self.free.pop(0) for _ in range(-(-len(tokens) // BLOCK))]
        self.scheduler.allocated(name, [table], loaded)
        if loaded and name not in self.step([]):
            loaded = 0  # The daemon went away meanwhile: compute everything.
        sums = np.cumsum(tokens)

        def compute() -> None:
            for memory in self.memory:
                pages = memory[table].reshape(-1)
                assert (pages[:loaded] == sums[:loaded]).all(), "the loaded KV equals the computed KV"
                pages[loaded:len(tokens)] = sums[loaded:]
                memory[table] = pages.reshape(-1, BLOCK)

        self.step([Scheduled(name, [table], True, len(tokens))], compute)
        self.scheduler.finished(name)
        self.free += table
        return loaded

    def close(self) -> None:
        self.scheduler.close()
        self.link.close()


def main() -> None:
    engine = Engine()
    engine.scheduler.reset()
    history = list(range(100, 150))
    for turn in range(3):
        print(f"turn {turn}: {engine.run(f'turn {turn}', history)} of {len(history)} prompt tokens loaded")
        history = history + list(range(500, 520)) + [turn] * 10
    engine.close()


if __name__ == "__main__":
    main()
