"""SGLang's host pools as pages of bytes. If a pool's layout is known, its pages are views.
Otherwise the pool itself gives the addresses or tensors of its pages."""

import ctypes
import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from sglang.srt.mem_cache.pool_host.mha import MHATokenToKVPoolHost
from sglang.srt.mem_cache.pool_host.mla import MLATokenToKVPoolHost

from pagoda.connector.page_memory import ArrayPages, Bytes, PageMemory


@dataclasses.dataclass(frozen=True)
class HostPages:
    """The pages of one host pool of one rank."""

    shards: tuple[PageMemory, ...]
    """The page, divided into the ranges of heads in which it is stored."""
    page_tokens: int
    """The indices of the pool for each page; 1 for pools of states."""
    layout: str
    """The order of a page's bytes, for a cache's identity."""
    shape: tuple[int, ...] = ()
    """The shape of a page as bytes, with the heads on the axis `heads`; () if only whole pages are
    known."""
    heads: int = 0

    @property
    def page_bytes(self) -> int:
        """The bytes of each shard."""
        return self.shards[0].page_bytes

    def numbers(self, host_indices: torch.Tensor) -> list[int]:
        """The pages' numbers, from the indices of their tokens."""
        numbers: list[int] = (host_indices[::self.page_tokens] // self.page_tokens).tolist()
        return numbers

    def of_tensor(self, flat: torch.Tensor) -> tuple[PageMemory, ...]:
        """A page in a separate tensor, in the form of the pool's get_data_page."""
        page = as_bytes(flat).reshape(1, *(self.shape or (-1,)))
        return tuple(ArrayPages(part) for part in _split(page, self.heads + 1, len(self.shards)))


def host_pages(pool: Any, *, split: int = 1, flat: bool = False) -> HostPages:
    """`split`: the number of ranges of heads. `flat`: pages also come as flat tensors. ValueError:
    the pool cannot be stored in this way."""
    layout, tokens = str(pool.layout), int(pool.page_size or 1)
    if type(pool) in (MHATokenToKVPoolHost, MLATokenToKVPoolHost):
        parts, heads = _views(pool, layout, tokens)
        if split > 1 and (heads < 0 or parts[0].shape[heads] % split):
            raise ValueError(f"pages of {pool.head_num} KV heads in the layout {layout} cannot be stored in {split} ranges of heads")
        cut = [_split(part, heads, split) for part in parts]
        shards = tuple(ArrayPages(*(part[index] for part in cut)) for index in range(split))
        shape = parts[0].shape[1:] if len(parts) == 1 else ()
        axes = "+".join("x".join(map(str, part[0].shape[1:])) for part in cut)
        return HostPages(shards, tokens, f"{layout}:{axes}", shape, heads - 1)
    if split > 1:
        raise ValueError(f"pages of a {type(pool).__name__} cannot be stored in ranges of heads")
    whole = None if flat else PointerPages.of(pool, tokens)
    if whole is not None:
        return HostPages((whole,), tokens, f"{layout}:{type(pool).__name__}:{whole.chunks}")
    pages = FlatPages(pool, tokens)
    return HostPages((pages,), tokens, f"{layout}:{type(pool).__name__}:flat{pages.page_bytes}")


def as_bytes(tensor: torch.Tensor) -> Bytes:
    """A view whose last axis counts bytes."""
    bits: Bytes = tensor.view(torch.uint8).numpy()
    return bits


def _views(pool: Any, layout: str, tokens: int) -> tuple[list[Bytes], int]:
    """Returns the pool's memory with the page number on the first axis, and the axis of the heads;
    -1 if there is none."""
    is_mla = isinstance(pool, MLATokenToKVPoolHost)
    if layout == "page_first_kv_split":
        names = ["k_buffer", *([] if pool.dsa_kv_cache_store_fp8 else ["v_buffer"]), "index_k_buffer", "index_k_scale_buffer"]
        return [as_bytes(buffer) for name in names if (buffer := getattr(pool, name, None)) is not None], -1
    memory = as_bytes(pool.kv_buffer)
    if layout in ("layer_first", "page_first"):
        # Split the tokens' axis into pages and the tokens of a page.
        axis = (0 if layout == "page_first" else 1) + (not is_mla)
        memory = memory.reshape(*memory.shape[:axis], memory.shape[axis] // tokens, tokens, *memory.shape[axis + 1:])
    elif layout in ("page_first_direct", "page_head"):
        axis = 0 if is_mla else 1
    elif layout == "page_unified":
        axis = 0
    else:
        raise ValueError(f"unknown SGLang layout {layout}")
    paged = np.moveaxis(memory, axis, 0)
    if is_mla or layout == "page_unified":
        return [paged], -1
    return [paged], 2 if layout == "page_head" else paged.ndim - 2


def _split(pages: Bytes, axis: int, count: int) -> list[Bytes]:
    return [pages] if count == 1 else np.split(pages, count, axis)


class PointerPages(PageMemory):
    """For a pool that gives the addresses of a page's chunks."""

    def __init__(self, pool: Any, tokens: int, chunks: Sequence[int]) -> None:
        self._pool = pool
        self._tokens = tokens
        self.chunks = tuple(chunks)
        self.page_bytes = sum(chunks)

    @classmethod
    def of(cls, pool: Any, tokens: int) -> "PointerPages | None":
        """None: the pool does not give addresses, in its layout or at all."""
        try:
            _, chunks = pool.get_page_buffer_meta(torch.arange(tokens))
        except (AttributeError, NotImplementedError, ValueError):
            return None
        return cls(pool, tokens, [int(size) for size in chunks])

    def load(self, slots: Bytes, pages: Sequence[int], places: Sequence[int]) -> None:
        for pointer, slot, size in self._chunks(slots, pages, places):
            ctypes.memmove(pointer, slot, size)

    def save(self, slots: Bytes, pages: Sequence[int], places: Sequence[int]) -> None:
        for pointer, slot, size in self._chunks(slots, pages, places):
            ctypes.memmove(slot, pointer, size)

    def _chunks(self, slots: Bytes, pages: Sequence[int], places: Sequence[int]) -> Any:
        """Yields (address of the page's chunk, address in the slot, bytes)."""
        indices = (torch.tensor(pages)[:, None] * self._tokens + torch.arange(self._tokens)).flatten()
        pointers, sizes = self._pool.get_page_buffer_meta(indices)
        if len(pointers) != len(pages) * len(self.chunks) or tuple(sizes[:len(self.chunks)]) != self.chunks:
            raise RuntimeError(f"{type(self._pool).__name__} changed the chunks of its pages")
        first, stride = slots.ctypes.data, slots.strides[0]
        offsets = [sum(self.chunks[:index]) for index in range(len(self.chunks))]
        for index, pointer in enumerate(pointers):
            page, chunk = divmod(index, len(self.chunks))
            yield int(pointer), first + places[page] * stride + offsets[chunk], self.chunks[chunk]


class FlatPages(PageMemory):
    """For a pool that gives pages only as tensors: each page is copied twice."""

    def __init__(self, pool: Any, tokens: int) -> None:
        self._pool = pool
        self._tokens = tokens
        example = pool.get_dummy_flat_data_page()
        self._dtype = example.dtype
        self.page_bytes = math.prod(example.shape) * example.element_size()

    def load(self, slots: Bytes, pages: Sequence[int], places: Sequence[int]) -> None:
        for page, place in zip(pages, places):
            self._pool.set_from_flat_data_page(page * self._tokens, torch.from_numpy(slots[place].copy()).view(self._dtype))

    def save(self, slots: Bytes, pages: Sequence[int], places: Sequence[int]) -> None:
        for page, place in zip(pages, places):
            slots[place] = as_bytes(self._pool.get_data_page(page * self._tokens).flatten())
