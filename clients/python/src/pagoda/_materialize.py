"""The K and V of a sequence as arrays: what is asked of the daemon, and what becomes of its
messages. Nothing here does I/O."""

import dataclasses
from typing import Any

import grpc
import numpy as np
import numpy.typing as npt

from pagoda._contract import v1
from pagoda._sequences import SequenceView
from pagoda.errors import Details, PagodaError, make

# By pagoda.v1.DType: the type on the wire. bfloat16 comes as its bits. The daemon sends fp8 as
# float32.
_TYPES: dict[int, type[np.generic]] = {1: np.float32, 2: np.float16, 3: np.uint16, 6: np.uint8}
_BFLOAT16 = 3


@dataclasses.dataclass(frozen=True, eq=False)
class Materialized:
    """A copy of a layer's K and V, [tokens, num_kv_heads, head_dim] each. Row 0 is token
    `first_token` of the sequence.

    float32, float16 and uint8 layers have their own dtype. numpy has neither bfloat16 nor fp8, so
    these come as float32: bfloat16 exactly, and fp8 multiplied by the scales of its blocks.
    """

    keys: npt.NDArray[Any]
    values: npt.NDArray[Any] | None
    """None for a layer with K only."""
    first_token: int


class Reading:
    """One layer of a sequence on its way into arrays."""

    def __init__(self, sequence: SequenceView, layer: int, begin: int | None, end: int | None) -> None:
        if end is not None and end < 1:
            raise ValueError(f"end must be at least 1, not {end}")
        self._sequence = sequence
        self._layer = layer
        self._begin = begin
        self._end = end
        self._first = begin or 0
        self._header: Any = None
        self._keys: bytearray = bytearray()
        self._values: bytearray = bytearray()

    def request(self, session: Any) -> Any:
        """Builds the request. What came of an earlier one is forgotten."""
        self._header, self._keys, self._values = None, bytearray(), bytearray()
        return v1.MaterializeRequest(session=session, sequence_id=self._sequence.id, layer=self._layer, token_begin=self._first,
                                     token_end=self._end or 0)

    def take(self, message: Any) -> None:
        if self._header is None:
            self._header = message.layer
        self._keys += message.keys
        self._values += message.values

    def failed(self, error: PagodaError) -> PagodaError | None:
        """The error to raise. None: ask again, because the window has passed the first token, and
        the caller has asked for everything that the window still holds."""
        if error.reason == "KV_LOST":
            return self._sequence._error_of(Details(error.code, error.message, error.reason))
        held = int(error.metadata.get("first_token", 0))
        if self._begin is not None or error.reason != "WINDOW_PASSED" or held <= self._first:
            return error
        self._first = held
        return None

    def result(self) -> Materialized:
        """REQUIRES: the stream has ended without an error."""
        header = self._header
        kind = None if header is None else _TYPES.get(header.dtype)
        if kind is None:
            raise make(Details(grpc.StatusCode.INTERNAL, "the daemon sent no arrays, or arrays of an unknown type"))
        shape = (header.token_end - header.token_begin, header.num_kv_heads, header.head_dim)
        rows = [np.frombuffer(some, kind) for some in (self._keys, self._values)]
        if rows[0].size != shape[0] * shape[1] * shape[2] or rows[1].size not in (0, rows[0].size):
            raise make(Details(grpc.StatusCode.INTERNAL, f"the daemon sent {rows[0].size} and {rows[1].size} elements for {shape}"))
        if header.dtype == _BFLOAT16:
            rows = [(some.astype(np.uint32) << 16).view(np.float32) for some in rows]
        # Without a token nothing tells whether the layer has V.
        without_values = shape[0] > 0 and rows[1].size == 0
        return Materialized(rows[0].reshape(shape), None if without_values else rows[1].reshape(shape), header.token_begin)
