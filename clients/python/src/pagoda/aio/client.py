"""The client, its sequences, batches and pins, for asyncio."""

from __future__ import annotations

import asyncio
import concurrent.futures
import time
import weakref
from collections.abc import Callable, Coroutine, Generator, Iterable
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar

import grpc

from pagoda import _exchange, _operations, _sequences, _watch, caches, errors, values
from pagoda._batch import MAX_WAIT, Recorder, was_cut_short
from pagoda._call import Call, Pending, present
from pagoda._contract import Calls, v1
from pagoda._endpoint import RECONNECT, TRIES, Credentials, client_name, is_slow, is_unix_socket, resolve
from pagoda._exchange import Question
from pagoda._keep_alive import next_delay
from pagoda._map_socket import SessionRef
from pagoda._materialize import Materialized, Reading
from pagoda._rings import Rings, choose, open_rings
from pagoda._sequences import SequenceView
from pagoda._session import SessionView, raise_failures
from pagoda._wire import BatchRequest
from pagoda._watch import Reader
from pagoda.aio._watch import Watch
from pagoda.caches import CacheIdentity, Caches, Layers, OpenedCache, Size
from pagoda.errors import PagodaError, SessionGone
from pagoda.values import Lane

# Seconds that a batch waits for the thread of the rings before it goes over gRPC.
_TURN = 0.05

P = ParamSpec("P")
R = TypeVar("R")


class _Closes(Protocol):
    async def __aexit__(self, kind: Any, error: Any, trace: Any) -> None: ...


T = TypeVar("T", bound=_Closes)


class Opening(Generic[T]):
    """An object that `await` opens, and that `async with` opens and ends."""

    def __init__(self, opened: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._open = opened

    def __await__(self) -> Generator[Any, Any, T]:
        return self._open().__await__()

    async def __aenter__(self) -> T:
        self._value = await self._open()
        return self._value

    async def __aexit__(self, kind: Any, error: Any, trace: Any) -> None:
        await self._value.__aexit__(kind, error, trace)


def _method(build: Callable[P, Call[R]]) -> Callable[Concatenate[Client, P], Coroutine[Any, Any, R]]:
    async def method(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await self._run(build(*args, **kwargs))

    present(method, build)
    return method


def _of_sequence(
        build: Callable[Concatenate[SequenceView, P], Call[R]]) -> Callable[Concatenate[Sequence, P], Coroutine[Any, Any, R]]:
    async def method(self: Sequence, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await self._client._run(build(self, *args, **kwargs))

    present(method, build, skip=1)
    return method


def _opened(build: Callable[Concatenate[SequenceView, P], Call[None]]) -> Callable[Concatenate[Client, P], Opening[Sequence]]:
    def method(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> Opening[Sequence]:
        async def opened() -> Sequence:
            sequence = Sequence(self)
            await self._run(build(sequence, *args, **kwargs))
            return sequence

        return Opening(opened)

    present(method, build, name="sequence", skip=1)
    return method


def _opened_later(build: Callable[Concatenate[SequenceView, P], Call[None]]) -> Callable[Concatenate[Batch, P], Sequence]:
    def method(self: Batch, /, *args: P.args, **kwargs: P.kwargs) -> Sequence:
        sequence = Sequence(self._client)
        self._record(build(sequence, *args, **kwargs))
        return sequence

    present(method, build, name="sequence", skip=1)
    return method


def _asked(build: Callable[P, Question[R]]) -> Callable[Concatenate[Client, P], Coroutine[Any, Any, R]]:
    async def method(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> R:
        question = build(*args, **kwargs)
        call = getattr(self._calls, question.method)
        return question.take(await self._unary(call, question.request(self._session.ref, self.timeout), question.seconds(self.timeout)))

    present(method, build)
    return method


def _begun(build: Callable[P, Question[R]]) -> Callable[Concatenate[Client, P], asyncio.Task[R]]:
    def method(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> asyncio.Task[R]:
        return asyncio.create_task(_asked(build)(self, *args, **kwargs), name=f"pagoda-{build.__name__}")

    present(method, build, name=f"{build.__name__}_async")
    method.__doc__ = f"Like {build.__name__}, but returns an asyncio.Task, which is under way at once."
    return method


def _pinned(build: Callable[P, Call[values.Pinned]]) -> Callable[Concatenate[Client, P], Opening[Pin]]:
    def method(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> Opening[Pin]:
        async def opened() -> Pin:
            return Pin(self, await self._run(build(*args, **kwargs)))

        return Opening(opened)

    present(method, build)
    return method


def _watched(build: Callable[P, Reader]) -> Callable[Concatenate[Client, P], Watch]:
    def method(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> Watch:
        return Watch(self._calls, build(*args, **kwargs).of_cache(self.cache.name))

    present(method, build, name="watch")
    return method


class Sequence(SequenceView):
    """Like pagoda.Sequence."""

    def __init__(self, client: Client) -> None:
        super().__init__(client._session.next_id(), client.cache.tokens_per_block)
        self._client = client
        client._session.register(self)

    append = _of_sequence(_sequences.append)
    reserve = _of_sequence(_sequences.reserve)
    commit = _of_sequence(_sequences.commit)
    truncate = _of_sequence(_sequences.truncate)
    describe = _of_sequence(_sequences.describe)
    query_capacity = _of_sequence(_sequences.query_capacity)
    free = _of_sequence(_sequences.free)

    def fork(self) -> Opening[Sequence]:
        async def opened() -> Sequence:
            child = Sequence(self._client)
            await self._client._run(_sequences.fork(self, child))
            return child

        return Opening(opened)

    async def wait_ready(self, timeout: float | None = None) -> None:
        """See pagoda.Sequence.wait_ready."""
        await self._client.wait(self.ready_ticket, timeout)
        if (loss := self.loss) is not None:
            raise loss

    async def materialize(self, layer: int, *, begin: int | None = None, end: int | None = None, timeout: float | None = None) -> Materialized:
        """See pagoda.Sequence.materialize."""
        return await self._client._materialize(Reading(self, layer, begin, end), timeout)

    async def __aenter__(self) -> Sequence:
        return self

    async def __aexit__(self, kind: Any, error: Any, trace: Any) -> None:
        if self.freed:
            return
        try:
            await self.free()
        except PagodaError:
            if error is None:
                raise


present(Sequence.fork, _sequences.fork, skip=2)


class Pin:
    """Like pagoda.Pin."""

    def __init__(self, client: Client, pinned: values.Pinned) -> None:
        self._client = client
        self.pin_id = pinned.pin_id
        self.pinned_tokens = pinned.pinned_tokens
        self.blocks = pinned.blocks

    def __repr__(self) -> str:
        return f"Pin(pin_id={self.pin_id}, pinned_tokens={self.pinned_tokens}, blocks={self.blocks})"

    async def unpin(self) -> None:
        """See pagoda.Pin.unpin."""
        await self._client.unpin(self.pin_id)

    async def __aenter__(self) -> Pin:
        return self

    async def __aexit__(self, kind: Any, error: Any, trace: Any) -> None:
        if not self.pin_id:
            return
        try:
            await self.unpin()
        except PagodaError:
            if error is None:
                raise


class Batch(Recorder):
    """Like pagoda.Batch."""

    def __init__(self, client: Client, step: int | None, completed_step: int | None) -> None:
        super().__init__(client.timeout)
        self._client = client
        self._steps = (step, completed_step)

    sequence = _opened_later(_sequences.open_sequence)

    def fork(self, sequence: SequenceView) -> Sequence:
        child = Sequence(self._client)
        self._record(_sequences.fork(sequence, child))
        return child

    async def send(self) -> None:
        """See pagoda.Batch.send."""
        await self._client._send(*self._seal(), *self._steps)

    async def __aenter__(self) -> Batch:
        return self

    async def __aexit__(self, kind: Any, error: Any, trace: Any) -> None:
        if error is None:
            await self.send()
            raise_failures(self._pending)


present(Batch.fork, _sequences.fork)


class Client(SessionView):
    """Like pagoda.Client. pagoda.aio.connect opens it."""

    def __init__(self, channel: grpc.aio.Channel, calls: Calls, opened: Any, timeout: float, rings: Rings | None = None) -> None:
        """Called by pagoda.aio.connect, in the client's event loop. `rings`: as in
        pagoda.Client."""
        super().__init__(opened, timeout)
        self._rings = rings
        # Waits for the rings' answers instead of the event loop. It starts with the first batch.
        self._waiter = concurrent.futures.ThreadPoolExecutor(1, "pagoda-rings")
        self._waiter_free = asyncio.Lock()
        self._channel = channel
        self._calls = calls
        self._closed = False
        self._beats = _Beats(self._calls, self._session.ref, self._session.lease)
        weakref.finalize(self, self._beats.forget)

    @property
    def session_error(self) -> PagodaError | None:
        """See pagoda.Client.session_error."""
        return self._beats.error

    allocate_blocks = _method(_operations.allocate_blocks)
    free_blocks = _method(_operations.free_blocks)
    fill_blocks = _method(_operations.fill_blocks)
    describe_blocks = _method(_operations.describe_blocks)
    match = _method(_operations.match)
    query_capacity = _method(_operations.query_capacity)
    offload = _method(_operations.offload)
    prefetch = _method(_operations.prefetch)
    unpin = _method(_operations.unpin)
    list_pins = _method(_operations.list_pins)
    invalidate = _method(_operations.invalidate)
    set_retention = _method(_operations.set_retention)
    append_step = _method(_sequences.append_step)
    fetch_prefix = _asked(_exchange.fetch_prefix)
    fetch_prefix_async = _begun(_exchange.fetch_prefix)
    export_prefix = _asked(_exchange.export_prefix)
    pools = _method(_operations.pools)
    sequence = _opened(_sequences.open_sequence)
    pin = _pinned(_operations.pin)
    watch = _watched(_watch.reading)

    def batch(self, *, step: int | None = None, completed_step: int | None = None) -> Batch:
        """See pagoda.Client.batch."""
        return Batch(self, step, completed_step)

    async def advance(self, *, step: int | None = None, completed_step: int | None = None) -> None:
        """See pagoda.Client.advance."""
        await self._send([], self.timeout, step, completed_step)

    async def wait(self, ticket: int, timeout: float | None = None, *, lane: Lane = Lane.MEMORY) -> None:
        """See pagoda.Client.wait."""
        deadline = time.monotonic() + (self.timeout if timeout is None else timeout)
        while ticket > self.completed_tickets[lane]:
            pending = Pending(_operations.wait_for_ticket(ticket, lane=lane))
            try:
                await self._send([pending], min(max(deadline - time.monotonic(), 0.0), MAX_WAIT) + self.timeout)
                pending.result()
            except PagodaError as error:
                if time.monotonic() >= deadline or not was_cut_short(error):
                    raise

    async def status(self) -> Any:
        """See pagoda.Client.status. It is for operators; engines use query_capacity."""
        return await self._unary(self._calls.get_status, v1.GetStatusRequest(cache=self.cache.name))

    async def reset_prefix_cache(self, *, timeout: float | None = None) -> int:
        """See pagoda.Client.reset_prefix_cache."""
        request = v1.ResetPrefixCacheRequest(cache=self.cache.name)
        return int((await self._unary(self._calls.reset_prefix_cache, request, timeout)).removed_blocks)

    async def caches(self) -> Caches:
        """See pagoda.Client.caches."""
        return Caches.take(await self._unary(self._calls.list_caches, v1.ListCachesRequest()))

    async def drop_cache(self, name: str, *, force: bool = False) -> int:
        """See pagoda.Client.drop_cache."""
        return int((await self._unary(self._calls.drop_cache, v1.DropCacheRequest(name=name, force=force))).ended_sessions)

    async def close(self) -> None:
        """See pagoda.Client.close."""
        if self._closed:
            return
        self._closed = True
        if self._rings is not None:
            self._rings.close()
        self._waiter.shutdown(wait=False)
        await self._beats.stop()
        try:
            await self._unary(self._calls.close_session, v1.CloseSessionRequest(session=self._session.ref))
        except SessionGone:
            pass
        finally:
            await self._channel.close(None)

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, kind: Any, error: Any, trace: Any) -> None:
        try:
            await self.close()
        except PagodaError:
            if error is None:
                raise

    async def _run(self, call: Call[R]) -> R:
        pending = Pending(call)
        await self._send([pending], self.timeout)
        return pending.result()

    async def _send(self, pending: list[Pending[Any]], timeout: float, step: int | None = None,
                    completed_step: int | None = None) -> None:
        request = self._session.request(pending, step, completed_step)
        try:
            response = await self._execute(request, timeout)
        except PagodaError as error:
            for one in pending:
                one._abandon(error)
            raise
        self._session.settle(request, pending, response.result)

    async def _execute(self, request: BatchRequest, timeout: float) -> Any:
        """Sends a batch, and sends it again if its answer is lost: the daemon runs it only once."""
        deadline = time.monotonic() + timeout
        if self._rings is not None and request.retry_id and not request.waits and not self._closed:
            if (answer := await self._by_rings(self._rings, request, timeout, deadline)) is not None:
                return answer
        for tries_left in reversed(range(TRIES)):
            try:
                return await self._unary(self._calls.execute, request, deadline - time.monotonic())
            except PagodaError as error:
                if not tries_left or error.reason or not errors.is_broken(error) or not request.retry_id:
                    raise
                if not await self._connected_within(min(RECONNECT, deadline - time.monotonic())):
                    raise

    async def _by_rings(self, rings: Rings, request: BatchRequest, timeout: float, deadline: float) -> Any:
        """See Rings.execute. None also if the thread is busy with other batches: over gRPC they run
        beside each other."""
        try:
            async with asyncio.timeout(min(_TURN, deadline - time.monotonic())):
                await self._waiter_free.acquire()
        except TimeoutError:
            return None
        if self._closed:
            self._waiter_free.release()
            return None
        call = asyncio.get_running_loop().run_in_executor(self._waiter, rings.execute, request, timeout, deadline)
        call.add_done_callback(self._after_rings)
        # A caller that gives up does not end the call. The thread stays busy until it is over.
        return await asyncio.shield(call)

    def _after_rings(self, call: asyncio.Future[Any]) -> None:
        self._waiter_free.release()
        if not call.cancelled():
            call.exception()  # The caller can have given up.

    async def _connected_within(self, seconds: float) -> bool:
        """See pagoda.Client."""
        try:
            await self._calls.keep_alive(v1.KeepAliveRequest(session=self._session.ref), timeout=seconds, wait_for_ready=True)
        except grpc.RpcError as error:
            return errors.was_connected(errors.of_call(error))
        return True

    async def _materialize(self, reading: Reading, timeout: float | None) -> Materialized:
        deadline = time.monotonic() + (self.timeout if timeout is None else timeout)
        while True:
            try:
                await self._read(reading, deadline - time.monotonic())
                return reading.result()
            except PagodaError as error:
                if (final := reading.failed(error)) is not None:
                    raise final from None

    async def _read(self, reading: Reading, timeout: float) -> None:
        try:
            async for message in self._calls.materialize(reading.request(self._session.ref), timeout=timeout):
                reading.take(message)
        except grpc.RpcError as error:
            raise errors.of_call(error) from None

    async def _unary(self, call: Any, request: Any, timeout: float | None = None) -> Any:
        try:
            return await call(request, timeout=self.timeout if timeout is None else timeout)
        except grpc.RpcError as error:
            raise errors.of_call(error) from None


class _Beats:
    """A task that renews a session's lease. It holds no reference to the client, so a client that
    is no longer referenced is collected."""

    def __init__(self, calls: Calls, session: Any, lease: float) -> None:
        self.error: PagodaError | None = None
        self._keep_alive = calls.keep_alive
        self._request = v1.KeepAliveRequest(session=session)
        self._lease = lease
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.create_task(self._run(), name="pagoda-keep-alive")

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])

    def forget(self) -> None:
        """Called from the thread that collects the client."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._task.cancel)

    async def _run(self) -> None:
        delay: float | None = self._lease / 3
        while delay is not None:
            await asyncio.sleep(delay)
            error = await self._beat()
            delay = next_delay(self._lease, error)
            if delay is None:
                self.error = error

    async def _beat(self) -> PagodaError | None:
        try:
            await self._keep_alive(self._request, timeout=self._lease / 3, wait_for_ready=True)
        except grpc.RpcError as error:
            return errors.of_call(error)
        return None


def connect(endpoint: str | None = None, *, name: str | None = None, lease: float | None = None,
            timeout: float = 10.0, token: str | None = None, ca_file: str | None = None, certificate_file: str | None = None,
            key_file: str | None = None, model: str | None = None, cache: str | None = None,
            transport: str | None = None) -> Opening[Client]:
    """Like pagoda.connect, with `await` or `async with`. A thread waits for the answers in shared
    memory."""
    credentials = Credentials.choose(token, ca_file, certificate_file, key_file)
    chosen = choose(transport)
    request = v1.OpenSessionRequest(client_name=client_name(name), lease_ms=values.optional_milliseconds(lease),
                                    model_fingerprint=model or "", cache=cache or "")

    async def opened() -> Client:
        channel = credentials.channel(resolve(endpoint), grpc.aio)
        try:
            calls = Calls(channel, credentials.metadata)
            deadline = time.monotonic() + timeout
            try:
                opened = await calls.open_session(request, timeout=timeout)
            except grpc.RpcError as error:
                if not is_slow(error):
                    raise
                opened = await calls.open_session(request, timeout=deadline - time.monotonic(), wait_for_ready=True)
            try:
                rings = await asyncio.to_thread(open_rings, chosen, SessionRef.take(opened), is_local=is_unix_socket(resolve(endpoint)))
            except PagodaError:
                await calls.close_session(v1.CloseSessionRequest(session=opened.session), timeout=timeout)
                raise
            return Client(channel, calls, opened, timeout, rings)
        except BaseException as error:
            await channel.close(None)
            if isinstance(error, grpc.RpcError):
                raise errors.of_call(error) from None
            raise

    return Opening(opened)


async def _ask(endpoint: str | None, credentials: Credentials, timeout: float, method: str, request: Any) -> Any:
    """See pagoda.client."""
    channel = credentials.channel(resolve(endpoint), grpc.aio)
    try:
        return await getattr(Calls(channel, credentials.metadata), method)(request, timeout=timeout)
    except grpc.RpcError as error:
        raise errors.of_call(error) from None
    finally:
        await channel.close(None)


async def open_cache(endpoint: str | None, name: str, *, identity: CacheIdentity, layers: Iterable[Layers], tokens_per_block: int,
                     host: Size | None = None, gpu: Size | None = None, disk: Size | None = None, eviction_policy: str = "", tenant: str = "",
                     timeout: float = 10.0, token: str | None = None, ca_file: str | None = None, certificate_file: str | None = None,
                     key_file: str | None = None) -> OpenedCache:
    """See pagoda.open_cache."""
    request = caches.opening(name, identity=identity, layers=layers, tokens_per_block=tokens_per_block, host=host, gpu=gpu, disk=disk,
                             eviction_policy=eviction_policy, tenant=tenant)
    return OpenedCache.take(await _ask(endpoint, Credentials.choose(token, ca_file, certificate_file, key_file), timeout, "open_cache",
                                       request))


async def list_caches(endpoint: str | None = None, *, timeout: float = 10.0, token: str | None = None, ca_file: str | None = None,
                      certificate_file: str | None = None, key_file: str | None = None) -> Caches:
    """See pagoda.list_caches."""
    return Caches.take(await _ask(endpoint, Credentials.choose(token, ca_file, certificate_file, key_file), timeout, "list_caches",
                                  v1.ListCachesRequest()))


async def drop_cache(endpoint: str | None, name: str, *, force: bool = False, timeout: float = 10.0, token: str | None = None,
                     ca_file: str | None = None, certificate_file: str | None = None, key_file: str | None = None) -> int:
    """See pagoda.drop_cache."""
    return int((await _ask(endpoint, Credentials.choose(token, ca_file, certificate_file, key_file), timeout, "drop_cache",
                           v1.DropCacheRequest(name=name, force=force))).ended_sessions)
