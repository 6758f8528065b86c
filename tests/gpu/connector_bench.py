"""Figures of a connector's copies between a GPU and the pool of a real daemon, one JSON object per
line.

    PAGODA_BIN=FOLDER python3 tests/gpu/connector_bench.py

A model of 32 layers with 8 KV heads of 128 elements in bf16, and blocks of 16 tokens: 64 KiB per
block and layer. 4,096 tokens are saved to random slots and loaded from them. The yardstick is one
copy of the same number of bytes between page-locked memory and the GPU. `float8`: stored in 8 bits;
the bytes are the engine's. `begin`: the time in which the worker's thread gives the copies to the
device. Exit status 77 without a device.
"""

import json
import pathlib
import random
import statistics
import sys
import tempfile
import time

import torch

if not torch.cuda.is_available():
    print("skipped: no CUDA device")
    sys.exit(77)

import pagoda  # noqa: E402
from daemon import pagodad  # noqa: E402
from pagoda.connector import BlockCopies, LayerPages, PageLayout, RankPages, StepPlan, WorkerSide  # noqa: E402
from pagoda.connector.cuda import CudaMover  # noqa: E402
from pagoda.connector.float8 import Float8  # noqa: E402

DEVICE = torch.device("cuda", 0)
LAYERS, HEADS, CHUNK, BLOCKS, SLOTS = 32, 8, 16 * 128 * 2 * 2, 256, 1024
REPETITIONS = 7


def seconds(what):
    """(time until `what` returns, time until the device has done it): medians."""
    begun, done = [], []
    for _ in range(REPETITIONS + 2):
        torch.cuda.synchronize()
        started = time.perf_counter()
        what()
        begun.append(time.perf_counter() - started)
        torch.cuda.synchronize()
        done.append(time.perf_counter() - started)
    return statistics.median(begun[2:]), statistics.median(done[2:])


def report(name, value, unit, yardstick="", against=None):
    line = {"figure": name, "value": round(value, 3), "unit": unit}
    if against is not None:
        line |= {"yardstick": yardstick, "yardstick_value": round(against, 3), "ratio": round(value / against, 3)}
    print(json.dumps(line), flush=True)


def main():
    # Each layer has one tensor, like in engines. So each layer needs one copy per block. One tensor
    # for all layers would need only one copy per block.
    memory = [torch.randn((4 * BLOCKS, 1, HEADS, CHUNK // 2), dtype=torch.bfloat16, device=DEVICE).view(torch.uint8) for _ in range(LAYERS)]
    size = LAYERS * HEADS * CHUNK * BLOCKS
    pinned = torch.empty(size, dtype=torch.uint8, pin_memory=True)
    whole = torch.empty(size, dtype=torch.uint8, device=DEVICE)
    _, up = seconds(lambda: whole.copy_(pinned, non_blocking=True))
    _, down = seconds(lambda: pinned.copy_(whole, non_blocking=True))
    with tempfile.TemporaryDirectory() as folder, \
            pagodad(pathlib.Path(folder), "--memory", "4GiB", memory={"host": "1MiB"}) as endpoint:
        for codec in (None, Float8(torch.bfloat16)):
            measure(endpoint, memory, codec, {"save": size / down * 1e-9, "load": size / up * 1e-9})


def measure(endpoint, memory, codec, large):
    kind = "" if codec is None else "_float8"
    layers = [LayerPages(f"layer.{i}", 0, 0, 1, HEADS, CHUNK, 0, 1, True, codec.stored_bytes(CHUNK) if codec else 0) for i in range(LAYERS)]
    layout = PageLayout.merge([RankPages(0, tuple(layers), "bench" + kind)], [16])
    pagoda.open_cache(endpoint, "bench" + kind, identity=pagoda.CacheIdentity("org/bench", layout=kind), layers=layout.cache_layers(),
                      tokens_per_block=16, host=SLOTS * LAYERS * HEADS * CHUNK)
    rng = random.Random(1)
    with pagoda.connect(endpoint, cache="bench" + kind) as session:
        worker = WorkerSide(0, CudaMover(DEVICE), timeout=30, codec=codec)
        worker.register(dict(zip(layers, memory)))
        blocks, slots = rng.sample(range(4 * BLOCKS), BLOCKS), rng.sample(range(SLOTS), BLOCKS)
        number = 0
        for way in ("save", "load"):
            def step():
                nonlocal number
                number += 1
                copies = BlockCopies([blocks], [slots])
                plan = StepPlan(number, session.session_ref.to_bytes(), {"r": copies} if way == "load" else {}, set(),
                                copies if way == "save" else BlockCopies.none(1), set())
                worker.begin(plan, layout)
                worker.load(plan)
                worker.save(plan)

            begin, done = seconds(step)
            assert worker.take_loaded()[1] == set() and not worker.report().failed_saves
            report(f"gpu_connector_{way}{kind}", LAYERS * HEADS * CHUNK * BLOCKS / done * 1e-9, "GB/s", "one large copy", large[way])
            report(f"gpu_connector_{way}{kind}_begin", begin * 1e3, "ms", "the copies", done * 1e3)
        worker.close()


main()
