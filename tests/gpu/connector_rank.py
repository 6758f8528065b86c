"""The engine of tests/e2e/toy_engine.py with its KV memory on a CUDA device. Kernels and copies run
on streams, and nothing waits for them.

The device compares the bytes that a kernel reads. The number of wrong bytes is read at the end.
"""

import random

import numpy as np
import torch
from pagoda.connector.cuda import CudaMover
from toy_engine import CHUNK_BYTES, NULL, Rank, ToyEngine

DEVICE = torch.device("cuda", 0)
MOST_CYCLES = 400_000  # The longest pause of a stream: about 0.2 ms.


class CudaRank(Rank):
    def make_memory(self, shape):
        return torch.zeros(shape, dtype=torch.uint8, device=DEVICE)


class CudaToyEngine(ToyEngine):
    rank_type = CudaRank

    def __init__(self, endpoint, *, seed=0, **options):
        self._rng = random.Random(seed)
        self._wrong = torch.zeros((), dtype=torch.int64, device=DEVICE)
        super().__init__(endpoint, mover=lambda: CudaMover(DEVICE), **options)

    def compute(self, request, start, end):
        for worker in self.workers:
            self._pause(torch.cuda.current_stream())
            self._compute(worker, request.id, request.tokens, request.tables, start, end)
            for stream in (worker.mover.loads, worker.mover.saves):
                self._pause(stream.stream)

    def _pause(self, stream):
        """The interleaving of the streams' work differs from step to step."""
        if self._rng.random() < 0.5:
            with torch.cuda.stream(stream):
                torch.cuda._sleep(self._rng.randrange(MOST_CYCLES))

    def _compute(self, worker, name, tokens, tables, start, end):
        heads = self.heads // self.ranks
        for layer, group in enumerate(self.group_of_layer):
            size, window = self.block_sizes[group], self.windows[group]
            first = max(start - window + 1, 0) if window else 0
            positions = range(first, end)
            blocks = [tables[group][position // size] for position in positions]
            assert NULL not in blocks, name
            expected = b"".join(self.value(tokens, position, layer, worker.first_head + head)
                                for position in positions for head in range(heads))
            values = self._to_device(np.frombuffer(expected, np.uint8).reshape(len(positions), heads, CHUNK_BYTES))
            rows = self._to_device(np.array([blocks, [position % size for position in positions]]))
            memory = worker.memory[layer].view(self.blocks, heads, size, CHUNK_BYTES)
            read = start - first
            memory[rows[0, read:], :, rows[1, read:]] = values[read:]
            self._wrong += (memory[rows[0], :, rows[1]] != values).sum()

    @staticmethod
    def _to_device(array):
        return torch.from_numpy(array.copy()).pin_memory().to(DEVICE, non_blocking=True)

    def wrong_bytes(self):
        torch.cuda.synchronize()
        return int(self._wrong.item())
