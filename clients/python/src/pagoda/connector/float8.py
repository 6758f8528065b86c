"""KV that slots hold in 8 bits and engines in 16 or 32 bits. Needs torch.

Each run of 64 elements of a chunk has a scale, so that its largest element becomes the largest
float8_e4m3fn. A stored chunk is the elements, one byte each, and then the scales, one float32 each:
17/32 of a chunk of 16 bits. A restored element differs by at most 1/16 of itself, or by 1/450,000
of the largest one of its run. If an element is not finite, its whole run is restored as NaN.
"""

from typing import Any

import numpy as np
import torch

from pagoda.connector.movers import Codec

RUN = 64
LARGEST = 448.0  # The largest finite float8_e4m3fn.
TYPES = (torch.bfloat16, torch.float16, torch.float32)


class Float8(Codec):
    """For chunks of one of TYPES."""

    def __init__(self, dtype: torch.dtype) -> None:
        """ValueError: not one of TYPES."""
        if dtype not in TYPES:
            raise ValueError(f"KV of {dtype} cannot be stored as float8; only bfloat16, float16 and float32 can")
        self._dtype = dtype
        self.name = f"float8_e4m3fn-{RUN}-of-{str(dtype).removeprefix('torch.')}"

    def stored_bytes(self, chunk_bytes: int) -> int:
        elements, rest = divmod(chunk_bytes, self._dtype.itemsize)
        if rest or elements % RUN:
            raise ValueError(f"KV is stored as float8 in runs of {RUN} elements, and a head has {chunk_bytes} bytes of {self._dtype} in a block")
        return elements + elements // RUN * 4

    def encode(self, chunks: Any) -> Any:
        elements = _tensor(chunks).view(self._dtype).unflatten(-1, (-1, RUN)).float()
        # Multiply by a factor, because a GPU's division differs from a CPU's.
        scales = torch.linalg.vector_norm(elements, torch.inf, -1, keepdim=True) * (1 / LARGEST)
        scales = torch.where(scales.isfinite(), scales, torch.nan)
        # A run of zeros has scale 0: divide by 1 instead. Apart from rounding, the quotient is at
        # most LARGEST.
        small = (elements / torch.where(scales > 0, scales, 1)).clamp_(-LARGEST, LARGEST).to(torch.float8_e4m3fn)
        return _like(chunks, torch.cat((small.view(torch.uint8).flatten(-2), scales.flatten(-2).contiguous().view(torch.uint8)), -1))

    def decode(self, stored: Any) -> Any:
        whole = _tensor(stored)
        runs = whole.shape[-1] // (RUN + 4)
        small = whole[..., :runs * RUN].contiguous().view(torch.float8_e4m3fn).unflatten(-1, (runs, RUN))
        scales = whole[..., runs * RUN:].contiguous().view(torch.float32).unsqueeze(-1)
        return _like(stored, (small.float() * scales).to(self._dtype).flatten(-2).view(torch.uint8))


def _tensor(array: Any) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(array)) if isinstance(array, np.ndarray) else array.contiguous()


def _like(given: Any, made: torch.Tensor) -> Any:
    return made.numpy() if isinstance(given, np.ndarray) else made
