"""The lists of copies for a CUDA device (pagoda.connector.cuda), without a device: the driver's
call copies memory of this process. tests/gpu/test_connector.py tests with a device."""

import ctypes
import mmap
import random

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from pagoda.connector import LayerPages, PageLayout, Places, RankPages, cuda  # noqa: E402
from pagoda.connector.float8 import Float8  # noqa: E402


class OneStream:
    """Stands for torch.cuda.Stream."""

    cuda_stream = 7


class Driver:
    """Stands for CUDA's driver: copies at once. `fails_at`: the call that raises."""

    def __init__(self, fails_at=None):
        self.calls, self.fails_at = [], fails_at

    def copy_all(self, device, stream, targets, sources, sizes):
        assert (device, stream) == (3, 7)
        self.calls.append(len(sizes))
        if len(self.calls) - 1 == self.fails_at:
            raise OSError("the driver refuses")
        for target, source, size in zip(targets.tolist(), sources.tolist(), sizes.tolist()):
            ctypes.memmove(target, source, size)


@pytest.fixture
def driver(monkeypatch):
    def use(**options):
        made = Driver(**options)
        monkeypatch.setattr(cuda, "copy_all", made.copy_all)
        return made

    return use


def mover_of(stream):
    """A CudaMover without a device."""
    mover = cuda.CudaMover.__new__(cuda.CudaMover)
    mover.loads = mover.saves = stream
    return mover


@pytest.mark.parametrize("seed", range(40))
def test_blocks_of_any_shape_reach_their_places(driver, monkeypatch, seed):
    """Several blocks in a slot, parts of heads, pieces, and gaps between all of them, with a few
    copies at once."""
    rng = random.Random(seed)
    monkeypatch.setattr(cuda, "COPIES_AT_ONCE", rng.choice([1, 3, 512]))
    used = driver()
    stream = cuda._CudaStream(OneStream(), 3)
    mover = mover_of(stream)
    pieces, heads, chunk, per_slot = rng.randrange(1, 4), rng.randrange(1, 4), rng.choice([1, 8, 60]), rng.choice([1, 2, 4])
    blocks, slots = 30, 10
    # The engine's blocks have gaps between them. A slot has a layer before this one and one after
    # it, and heads of other ranks.
    memory = torch.randint(0, 255, (blocks, pieces + rng.randrange(2), heads, chunk), dtype=torch.uint8)[:, :pieces]
    whole = torch.randint(0, 255, (slots, per_slot * pieces + 2, heads + 2, chunk), dtype=torch.uint8)
    first = rng.choice([0, 1, 2])
    theirs = Places(whole[:, 1:-1, first:first + heads], pieces, per_slot)
    ours = Places(memory, pieces)
    expected_whole, count = whole.clone(), min(blocks, slots * per_slot)
    chosen, parts = rng.sample(range(blocks), count), rng.sample(range(slots * per_slot), count)
    for block, part in zip(chosen, parts):
        place = 1 + part % per_slot * pieces
        expected_whole[part // per_slot, place:place + pieces, first:first + heads] = memory[block]
    mover.copy_blocks(stream, theirs, parts, ours, chosen)
    assert bool(used.calls) == (cuda.COPIES_AT_ONCE < 512), "many copies begin before `begin` is called"
    stream.begin()
    assert torch.equal(whole, expected_whole)
    before = memory.clone()
    memory.zero_()
    mover.copy_blocks(stream, ours, chosen, theirs, parts)
    stream.begin()
    assert torch.equal(memory[chosen], before[chosen])
    assert not memory[[block for block in range(blocks) if block not in chosen]].any()


def test_what_failed_leaves_nothing_behind(driver, monkeypatch):
    """Otherwise a later load would also make the copies of the failed one."""
    monkeypatch.setattr(cuda, "COPIES_AT_ONCE", 4)
    used = driver(fails_at=1)
    stream = cuda._CudaStream(OneStream(), 3)
    source, target = (Places(torch.full((10, 1, 1, 8), value, dtype=torch.uint8), 1) for value in (1, 0))

    def copy(block):
        mover_of(stream).copy_blocks(stream, target, range(block, block + 3), source, range(block, block + 3))

    copy(0)
    copy(3)  # Together with the first call, six copies have begun.
    copy(6)
    with pytest.raises(OSError):
        copy(7)
    copy(0)
    target.array.zero_()
    stream.drop()
    stream.begin()
    assert used.calls == [6, 6] and not target.array.any()


@pytest.mark.parametrize("seed", range(50))
def test_a_pool_is_registered_in_whole_slots_and_whole_pages(seed):
    rng = random.Random(seed)
    slots, slot_bytes = rng.randrange(1, 5000), rng.choice([1, 100, 4096, 5000, 6144, 1 << 20]) * rng.randrange(1, 4)
    most = rng.choice([1, slot_bytes, 1 << 20, 1 << 40])
    start = 40 * mmap.PAGESIZE
    parts = list(cuda.pieces(start, slots, slot_bytes, most))
    at = start
    for address, size in parts:
        assert address == at and size > 0 and size % slot_bytes == 0 and address % mmap.PAGESIZE == 0
        at += size
    assert at == start + slots * slot_bytes
    # A part is not larger than requested, apart from bytes that fill its pages.
    assert all(size <= max(most, np.lcm(slot_bytes, mmap.PAGESIZE)) for _, size in parts)


def test_a_layout_tells_what_the_slots_hold():
    def digest(dtype, elements=128):
        codec = Float8(dtype)
        chunk = elements * dtype.itemsize
        layer = LayerPages("layer.0", 0, 0, 1, 2, chunk, 0, 1, True, codec.stored_bytes(chunk))
        return PageLayout.merge([RankPages(0, (layer,), "kernels")], [16]).digest()

    digests = {digest(dtype) for dtype in (torch.bfloat16, torch.float32)}
    assert len(digests) == 2
    assert len({Float8(dtype).name for dtype in (torch.bfloat16, torch.float16, torch.float32)}) == 3
