"""An operation of a batch, from its request to its answer. Nothing here does I/O: the clients send
the requests that are built here."""

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from pagoda._map_socket import MapSocket
from pagoda._wire import operation
from pagoda.errors import Details, PagodaError, make
from pagoda.values import CacheInfo

R = TypeVar("R")


def _ignore(error: PagodaError) -> None:
    pass


@dataclasses.dataclass(frozen=True)
class Surroundings:
    """The session's data that a result may need."""

    map_socket: MapSocket
    cache: CacheInfo


def _as_it_is(result: R, session: Surroundings) -> R:
    return result


def _the_same(result: R) -> R:
    return result


def _none(tokens_per_block: int) -> int:
    return 0


@dataclasses.dataclass(frozen=True)
class Call(Generic[R]):
    """One operation: its name and request on the wire, and how this client processes its result or
    error. `packed`: serialized fields that follow the request's own."""

    name: str
    request: Any
    take: Callable[[Any], R]
    failed: Callable[[PagodaError], None] = _ignore
    error: Callable[[Details], PagodaError] = make
    # An upper bound of the block handles in the answer for each window, given the tokens per block.
    handles: Callable[[int], int] = _none
    # Adds the session's data to the result.
    complete: Callable[[R, Surroundings], R] = _as_it_is
    # Finishes the result after the answer's losses have been applied.
    behind_losses: Callable[[R], R] = _the_same
    packed: bytes = b""

    def serialized(self) -> tuple[bytes, bytes]:
        """The v1.Operation of this operation, in two parts."""
        return operation(self.name, self.request, self.packed)


class Pending(Generic[R]):
    """The outcome of an operation of a batch, after the batch has run."""

    def __init__(self, call: Call[R]) -> None:
        self._call = call
        self._results: list[R] = []
        self._error: PagodaError | None = None

    def result(self) -> R:
        """Returns the operation's result or raises its error. RuntimeError: the batch has not
        run."""
        if self._error is not None:
            raise self._error
        if not self._results:
            raise RuntimeError("the batch has not run")
        return self._results[0]

    @property
    def error(self) -> PagodaError | None:
        """The operation's error, if it failed."""
        return self._error

    def _abandon(self, error: PagodaError) -> None:
        """The whole batch failed. It may be unknown whether it ran."""
        self._error = error

    def _succeed(self, message: Any, session: Surroundings) -> None:
        self._results.append(self._call.complete(self._call.take(message), session))

    def _take_losses(self) -> None:
        self._results = [self._call.behind_losses(result) for result in self._results]

    def _fail(self, details: Details) -> None:
        self._error = self._call.error(details)
        self._call.failed(self._error)


def present(method: Any, build: Callable[..., Any], *, name: str = "", skip: int = 0) -> None:
    """Gives `method` its public appearance for help() and editors: the name and the docstring of
    `build`, and after `self` its parameters without the first `skip`."""
    method.__name__ = name or build.__name__
    method.__qualname__ = method.__name__
    method.__doc__ = build.__doc__
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = list(inspect.signature(build).parameters.values())
    method.__signature__ = inspect.Signature([own, *parameters[skip:]])
