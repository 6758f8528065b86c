"""The event stream for asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Generator, Iterable
from typing import Any

import grpc

from pagoda import errors
from pagoda._contract import Calls
from pagoda._endpoint import Credentials, resolve
from pagoda._watch import Content, Reader, ended, reading
from pagoda.errors import PagodaError, WatchRefused
from pagoda.events import Event, Item
from pagoda.values import Tier

_aio: Any = grpc.aio


class Watch:
    """Like pagoda.Watch. It begins with `await`, with `async with`, or when the first item is
    requested."""

    def __init__(self, calls: Calls, reader: Reader, channel: grpc.aio.Channel | None = None) -> None:
        self._watch = calls.watch
        self._channel = channel
        self._reader = reader
        self._stream: Any = None
        self._closed = asyncio.Event()

    @property
    def revision(self) -> int:
        """See pagoda.Watch.revision."""
        return self._reader.revision

    @property
    def epoch(self) -> int:
        """See pagoda.Watch.epoch."""
        return self._reader.epoch

    async def close(self) -> None:
        """See pagoda.Watch.close."""
        self._closed.set()
        if self._stream is not None:
            self._stream.cancel()
        if self._channel is not None:
            await self._channel.close(None)

    def __aiter__(self) -> AsyncIterator[Item]:
        return self

    async def __anext__(self) -> Item:
        if self._stream is None:
            await self._start()
        while not self._closed.is_set():
            item = self._reader.next()
            if item is not None:
                return item
            try:
                await self._read()
            except PagodaError as error:
                await self._mend(error)
        raise StopAsyncIteration

    async def _read(self) -> None:
        try:
            message = await self._stream.read()
        except grpc.RpcError as error:
            raise errors.of_call(error) from None
        except asyncio.CancelledError:
            if self._closed.is_set():  # The stream was cancelled, not this task.
                raise ended() from None
            raise
        if message is _aio.EOF:
            raise ended()
        self._reader.accept(message)

    async def _start(self) -> None:
        try:
            await self._begin()
        except WatchRefused as refused:
            if not self._reader.renews:
                raise
            await self._mend(refused)

    async def _begin(self, **options: Any) -> None:
        self._stream = self._watch(self._reader.position.request(), **options)
        await self._read()

    async def _mend(self, error: PagodaError) -> None:
        self._reader.broke()
        while not self._closed.is_set():
            delay = self._reader.next_delay(error)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._closed.wait(), delay)
            if self._closed.is_set():
                return
            left = self._reader.time_left()
            try:
                return await asyncio.wait_for(self._begin(wait_for_ready=True), None if left == math.inf else left)
            except PagodaError as again:
                error = again
            except TimeoutError:
                pass  # `error` is the error that caused the attempt.

    async def _opened(self) -> Watch:
        try:
            if self._stream is None:
                await self._start()
        except BaseException:
            await self.close()
            raise
        return self

    def __await__(self) -> Generator[Any, Any, Watch]:
        return self._opened().__await__()

    async def __aenter__(self) -> Watch:
        return await self._opened()

    async def __aexit__(self, kind: Any, error: Any, trace: Any) -> None:
        await self.close()


def watch(endpoint: str | None = None, *, from_revision: int | None = None, epoch: int = 0, snapshot: bool = False,
          resnapshot: bool = False, types: Iterable[type[Event]] = (), tiers: Iterable[Tier] = (), windows: Iterable[int] = (),
          tenant: str = "", progress: bool = False, reconnect: float | None = 60.0, token: str | None = None, ca_file: str | None = None,
          certificate_file: str | None = None, key_file: str | None = None, cache: str | None = None, content: Content = "tokens",
          chunk_tokens: int = 0) -> Watch:
    """See pagoda.watch."""
    credentials = Credentials.choose(token, ca_file, certificate_file, key_file)
    reader = reading(from_revision=from_revision, epoch=epoch, snapshot=snapshot, resnapshot=resnapshot, types=types, tiers=tiers,
                     windows=windows, tenant=tenant, progress=progress, reconnect=reconnect, content=content,
                     chunk_tokens=chunk_tokens).of_cache(cache)
    channel = credentials.channel(resolve(endpoint), grpc.aio)
    return Watch(Calls(channel, credentials.metadata), reader, channel)
