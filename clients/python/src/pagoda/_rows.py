"""Numbers as they lie on the wire. Lists of blocks are rows of them in one field of bytes:
proto/pagoda/v1/types.proto, BlockHandle."""

import struct
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt


def numbers(kind: str, values: Sequence[int]) -> bytes:
    """The numbers as uint32 (`kind` "I") or uint64 ("Q"). ValueError: one does not fit."""
    try:
        return struct.pack(f"<{len(values)}{kind}", *values)
    except struct.error:
        raise ValueError(f"not every number of {values!r:.100} is an integer of {8 * struct.calcsize('<' + kind)} bits without sign") from None


def rows(field: bytes) -> npt.NDArray[np.uint32]:
    """The rows of three uint32, such as handles, in a field: a read-only view."""
    return np.frombuffer(field, "<u4").reshape(-1, 3)
