"""Maps memory before it is used: the first touch of an unused page costs several times its copy."""

import ctypes
import logging
import mmap
import os
import threading
from typing import Any

import numpy.typing as npt

log = logging.getLogger("pagoda.connector")

_POPULATE_WRITE = 23  # madvise(2), Linux 5.14; changes no byte.
_PIECE = 16 << 20


def populate(pool: npt.NDArray[Any], stopped: threading.Event) -> None:
    """Maps a whole pool, piece by piece, until `stopped` is set. Other threads run meanwhile. If
    the daemon allocates memory on the first touch, this allocates all of it."""
    libc: Any = ctypes.CDLL(None, use_errno=True)
    start = pool.ctypes.data
    end = start + pool.shape[0] * pool.strides[0]
    for piece in range(start - start % mmap.PAGESIZE, end, _PIECE):
        if stopped.is_set():
            return
        if libc.madvise(ctypes.c_void_p(piece), ctypes.c_size_t(min(_PIECE, end - piece)), _POPULATE_WRITE):
            log.warning("the pool could not be mapped in advance: %s", os.strerror(ctypes.get_errno()))
            return
