"""Copies of a connector between a GPU and the pool of a real daemon (pagoda.connector.cuda), with
an engine that checks each byte.

Needs PyTorch with CUDA, and PAGODA_BIN. Figures: connector_bench.py.
"""

import mmap
import random

import numpy as np
import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no CUDA device", allow_module_level=True)

from connector_rank import CudaToyEngine  # noqa: E402
from daemon import pagodad  # noqa: E402
from pagoda.connector import Places, cuda  # noqa: E402
from pagoda.connector.float8 import Float8  # noqa: E402
from toy_engine import prompts  # noqa: E402

SHAPES = {
    "one group": {},
    "sliding windows": {"windows": (0, 10, 7)},
    "blocks of two sizes": {"windows": (0, 9), "block_sizes": (8, 4)},
    "two ranks": {"ranks": 2, "windows": (0, 10)},
}
STEPS = 200_000


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory):
    with pagodad(tmp_path_factory.mktemp("daemon"), "--memory", "256MiB", memory={"host": "1MiB"}) as started:
        yield started


@pytest.fixture
def engines(endpoint):
    made = []

    def make(**options):
        made.append(CudaToyEngine(endpoint, cache=f"gpu-{random.randrange(1 << 60)}", **options))
        assert made[-1].link.wait(10)
        return made[-1]

    yield make
    for engine in made:
        engine.close()


@pytest.mark.parametrize("shape", SHAPES)
def test_whole_blocks_come_back(engines, shape):
    engine = engines(host="2MiB", **SHAPES[shape])
    asked = prompts(random.Random(1), 12)
    engine.run(asked, generate=10, steps=STEPS)
    torch.cuda.synchronize()
    with engine.side._lock:
        engine.side._do_work()
    size = engine.layout.tokens_per_block
    again = engine.run(asked, generate=3, steps=STEPS)
    assert again == [(len(prompt) - 1) // size * size for prompt in asked]
    assert engine.failed_loads == 0 and engine.wrong_bytes() == 0


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed, at_once", [(0, 512), (1, 1), (2, 3)])
def test_blocks_that_are_used_again_at_once_never_have_wrong_bytes(engines, monkeypatch, shape, seed, at_once):
    """The engine has few blocks and reuses the last freed one first, and there are few slots.
    Another copy follows each copy closely."""
    monkeypatch.setattr(cuda, "COPIES_AT_ONCE", at_once)
    rng = random.Random(seed)
    engine = engines(seed=seed, host="32KiB", blocks=120, reuses_last=True, **SHAPES[shape])
    asked = prompts(rng, 20)
    for _ in range(400):
        engine.step_at_random(rng, asked, 5)
    assert engine.hit_tokens > 100 and engine.failed_loads == 0
    engine.end_all()
    assert engine.wrong_bytes() == 0


def test_the_comparison_finds_a_wrong_byte(engines):
    """Different bytes in the slots are detected."""
    engine = engines(host="2MiB")
    asked = prompts(random.Random(3), 4)
    engine.run(asked, steps=STEPS)
    torch.cuda.synchronize()
    with engine.side._lock:
        engine.side._do_work()
    assert engine.wrong_bytes() == 0
    for worker in engine.workers:
        worker.side._mapping.layers["layer.0"].array[:] = 77
    engine.run(asked, steps=STEPS)
    assert engine.wrong_bytes() > 0


def test_a_pool_is_registered_in_pieces(monkeypatch):
    """Slots are not whole pages; no page and no slot is cut in two."""
    monkeypatch.setattr(cuda, "REGISTERED_AT_ONCE", 3 << 20)
    slots, slot_bytes = 2000, 5000
    pool = np.frombuffer(mmap.mmap(-1, slots * slot_bytes), np.uint8).reshape(slots, slot_bytes)
    pool[:] = np.arange(slots, dtype=np.uint16).astype(np.uint8)[:, None]
    mover = cuda.CudaMover(torch.device("cuda", 0))
    registered = mover.register(pool)
    assert len(mover._registered[pool.ctypes.data]) == 4
    there = torch.zeros((slots, slot_bytes), dtype=torch.uint8, device="cuda")
    mover.copy_blocks(mover.loads, Places(there[:, None, None], 1), range(slots), Places(registered[:, None, None], 1), range(slots))
    mover.loads.mark()
    torch.cuda.synchronize()
    assert np.array_equal(there.cpu().numpy(), pool)
    mover.close()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_a_codec_makes_on_the_device_what_it_makes_on_the_host(monkeypatch, dtype):
    """Also places the bytes: heads apart in memory, two blocks per slot, and more bytes than one
    conversion handles."""
    monkeypatch.setattr(cuda, "CONVERTED_AT_ONCE", 3 * 2 * 4 * 1024)
    codec = Float8(dtype)
    chunk = 512 * dtype.itemsize
    stored = codec.stored_bytes(chunk)
    elements = torch.randn((40, 2, 4, 512), dtype=torch.float32).mul(3).to(dtype).cuda()
    memory = Places(elements.view(torch.uint8), 2)
    pool = np.frombuffer(mmap.mmap(-1, 20 * 6 * 4 * stored), np.uint8).reshape(20, 6 * 4 * stored)
    mover = cuda.CudaMover(torch.device("cuda", 0))
    slots = Places(mover.register(pool).view(20, 6, 4, stored)[:, 1:5], 2, 2)
    blocks, parts = random.sample(range(40), 30), random.sample(range(40), 30)
    mover.copy_blocks(mover.saves, slots, parts, memory, blocks, codec.encode)
    saved = mover.saves.mark()
    torch.cuda.synchronize()
    assert saved.is_reached()
    for block, part in zip(blocks, parts):
        wanted = codec.encode(memory.blocks(block, 1).cpu())
        assert torch.equal(slots.blocks(part, 1), wanted)
    assert not pool.reshape(20, 6, -1)[:, [0, 5]].any(), "bytes beside the slots' parts"
    back = Places(torch.zeros_like(memory.array), 2)
    mover.copy_blocks(mover.loads, back, blocks, slots, parts, codec.decode)
    mover.loads.mark()
    torch.cuda.synchronize()
    for block in range(40):
        wanted = codec.decode(codec.encode(memory.blocks(block, 1).cpu())) if block in blocks else torch.zeros_like(memory.blocks(block, 1)).cpu()
        assert torch.equal(back.blocks(block, 1).cpu(), wanted)
    mover.close()
