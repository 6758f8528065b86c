"""Serialized messages that are put together from parts, because prompts are long: a prompt's tokens
become bytes once, and are then only copied."""

import functools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from pagoda._contract import v1
from pagoda._extension import native
from pagoda._rows import numbers
from pagoda.values import MOST_TOKEN, Tokens, token_list, token_row


_SMALL = tuple(bytes((value,)) for value in range(128))


def varint(value: int) -> bytes:
    """A number of 0 to 2**64 - 1 on the wire."""
    if value < 128:
        return _SMALL[value]
    made = bytearray()
    while value > 127:
        made.append(value & 127 | 128)
        value >>= 7
    made.append(value)
    return bytes(made)


def _tag(number: int) -> bytes:
    """In front of a field of bytes or of a message."""
    return varint(number << 3 | 2)


_OPERATIONS = {field.name: _tag(field.number) for field in v1.Operation.DESCRIPTOR.fields}
_OPERATION, _BATCH = _tag(1), _tag(2)
_STEP, _COMPLETED_STEP, _RETRY_ID = b"\x10", b"\x18", b"\x20"


def _row(tokens: Tokens) -> Any:
    """The tokens as a list, or as an array without a copy. Nothing has checked the elements."""
    if type(tokens) is not list and hasattr(tokens, "__array__"):
        try:
            array = np.asarray(tokens)
        except (TypeError, RuntimeError):  # A tensor on a GPU, or with a gradient.
            return token_row(tokens)
        if array.ndim == 1 and array.dtype.kind in "iu" and array.dtype.isnative:
            return array
    return token_row(tokens)


@functools.cache
def _number(request: Any, name: str = "tokens") -> int:
    number: int = request.DESCRIPTOR.fields_by_name[name].number
    return number


def _packed(number: int, row: Any) -> bytes:
    """Like the extension's function of that name."""
    if not isinstance(row, np.ndarray) or row.min() < 0 or row.max() > MOST_TOKEN:
        row = token_list(row)  # Refuses an array.
    return _field(number, np.asarray(row, "<u4").tobytes())


_pack = _packed if native is None else native.packed


def _field(number: int, content: bytes) -> bytes:
    return _tag(number) + varint(len(content)) + content


class TokenField:
    """Token ids on their way into a request: `packed`, a serialized field that follows the others
    of the message, and the `count` of tokens."""

    __slots__ = ("count", "packed")

    def __init__(self, tokens: Tokens, request: Any) -> None:
        """`request`: the class of the message. ValueError, TypeError: something is no token id."""
        row = _row(tokens)
        self.count = len(row)
        self.packed: bytes = _pack(_number(request), row) if self.count else b""


def number_field(request: Any, name: str, kind: str, values: Sequence[int]) -> bytes:
    """A packed field of the message's class: see `numbers`."""
    return _field(_number(request, name), numbers(kind, values))


def session_field(session: Any) -> bytes:
    """The first field of an ExecuteRequest or a SessionRequest: a v1.SessionRef."""
    return _field(1, session.SerializeToString())


def operation(name: str, request: Any, packed: bytes = b"") -> tuple[bytes, bytes]:
    """A v1.Operation: the request `name`, with `packed` behind its fields. In two parts, so that
    long tokens are not copied."""
    fields: bytes = request.SerializeToString()
    return _OPERATIONS[name] + varint(len(fields) + len(packed)) + fields, packed


class BatchRequest:
    """A serialized ExecuteRequest. The same bytes are a SessionRequest."""

    __slots__ = ("step", "completed_step", "retry_id", "waits", "_serialized")

    def __init__(self, session: bytes, operations: Iterable[tuple[bytes, bytes]], *, step: int, completed_step: int, retry_id: int,
                 waits: bool = False) -> None:
        """`session`: of session_field. `operations`: of operation. `waits`: whether one of them
        waits for a ticket."""
        self.waits = waits
        self.step = step
        self.completed_step = completed_step
        self.retry_id = retry_id
        parts = []
        for fields, packed in operations:
            parts += (_OPERATION, varint(len(fields) + len(packed)), fields, packed)
        for tag, value in ((_STEP, step), (_COMPLETED_STEP, completed_step), (_RETRY_ID, retry_id)):
            if value:
                parts += (tag, varint(value))
        size = sum(map(len, parts))
        self._serialized = b"".join((session, _BATCH, varint(size), *parts))

    def SerializeToString(self) -> bytes:
        """Like a message's method of that name."""
        return self._serialized

    @property
    def batch(self) -> Any:
        """The v1.Batch, read from the bytes."""
        return v1.ExecuteRequest.FromString(self._serialized).batch
