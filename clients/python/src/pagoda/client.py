"""The blocking client. pagoda.aio has the same for asyncio."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterable
from typing import Any, Concatenate, ParamSpec, TypeVar

import grpc

from pagoda import _exchange, _operations, _sequences, _watch, caches, errors, values
from pagoda._batch import MAX_WAIT, Recorder, was_cut_short
from pagoda._call import Call, Pending, present
from pagoda._contract import Calls, v1
from pagoda._endpoint import RECONNECT, TRIES, Credentials, client_name, is_slow, is_unix_socket, resolve
from pagoda._exchange import PendingCall, Question
from pagoda._keep_alive import KeepAlive
from pagoda._map_socket import SessionRef
from pagoda._materialize import Materialized, Reading
from pagoda._rings import Rings, choose, open_rings
from pagoda._sequences import SequenceView
from pagoda._session import SessionView, raise_failures
from pagoda._wire import BatchRequest
from pagoda.caches import CacheIdentity, Caches, Layers, OpenedCache, Size
from pagoda.errors import PagodaError, SessionGone
from pagoda.values import Lane
from pagoda._watch import Reader, Watch

P = ParamSpec("P")
R = TypeVar("R")


def _method(build: Callable[P, Call[R]]) -> Callable[Concatenate[Client, P], R]:
    def method(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._run(build(*args, **kwargs))

    present(method, build)
    return method


def _of_sequence(build: Callable[Concatenate[SequenceView, P], Call[R]]) -> Callable[Concatenate[Sequence, P], R]:
    def method(self: Sequence, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._client._run(build(self, *args, **kwargs))

    present(method, build, skip=1)
    return method


def _opened(build: Callable[Concatenate[SequenceView, P], Call[None]]) -> Callable[Concatenate[Client, P], Sequence]:
    def method(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> Sequence:
        sequence = Sequence(self)
        self._run(build(sequence, *args, **kwargs))
        return sequence

    present(method, build, name="sequence", skip=1)
    return method


def _opened_later(build: Callable[Concatenate[SequenceView, P], Call[None]]) -> Callable[Concatenate[Batch, P], Sequence]:
    def method(self: Batch, /, *args: P.args, **kwargs: P.kwargs) -> Sequence:
        sequence = Sequence(self._client)
        self._record(build(sequence, *args, **kwargs))
        return sequence

    present(method, build, name="sequence", skip=1)
    return method


def _asked(build: Callable[P, Question[R]]) -> Callable[Concatenate[Client, P], R]:
    def method(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> R:
        question = build(*args, **kwargs)
        call = getattr(self._calls, question.method)
        return question.take(self._unary(call, question.request(self._session.ref, self.timeout), question.seconds(self.timeout)))

    present(method, build)
    return method


def _begun(build: Callable[P, Question[R]]) -> Callable[Concatenate[Client, P], PendingCall[R]]:
    """The same without waiting for the answer."""
    def method(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> PendingCall[R]:
        question = build(*args, **kwargs)
        begin = getattr(self._calls, f"begin_{question.method}")
        future = self._unary(begin, question.request(self._session.ref, self.timeout), question.seconds(self.timeout))
        return PendingCall(future, question.take)

    present(method, build, name=f"{build.__name__}_async")
    method.__doc__ = f"Like {build.__name__}, but returns a PendingCall at once: it does not wait for the daemon."
    return method


def _pinned(build: Callable[P, Call[values.Pinned]]) -> Callable[Concatenate[Client, P], Pin]:
    def method(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> Pin:
        return Pin(self, self._run(build(*args, **kwargs)))

    present(method, build)
    return method


def _watched(build: Callable[P, Reader]) -> Callable[Concatenate[Client, P], Watch]:
    def method(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> Watch:
        return Watch(self._calls, build(*args, **kwargs).of_cache(self.cache.name))

    present(method, build, name="watch")
    return method


class Sequence(SequenceView):
    """A sequence of this session. A `with` block frees it at its end."""

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

    def fork(self) -> Sequence:
        child = Sequence(self._client)
        self._client._run(_sequences.fork(self, child))
        return child

    def wait_ready(self, timeout: float | None = None) -> None:
        """Waits until the slots of the tables can be read and written: until the copies of the
        match, of a fork or of a cut have ended. Returns at once if they have.

        `timeout`: seconds; default: the client's.
        Errors: WAIT_TIMEOUT; KV_LOST if a copy failed (see KvLost).
        """
        self._client.wait(self.ready_ticket, timeout)
        if (loss := self.loss) is not None:
            raise loss

    def materialize(self, layer: int, *, begin: int | None = None, end: int | None = None, timeout: float | None = None) -> Materialized:
        """Returns a copy of the K and V of one layer's computed tokens, as numpy arrays. It is for
        tests, for debugging, and for clients that cannot map the pools: the bytes come through the
        daemon. It waits for copies into the sequence's slots.

        `layer`: the layer's number in the model. `begin`, `end`: the range of tokens; default: all
        computed tokens that the layer's window still holds. `timeout`: seconds to wait for the
        whole answer; default: the client's.
        Errors: UNKNOWN_SEQUENCE; INVALID_ARGUMENT (no such layer, an opaque layer, tokens that are
        not computed, or the sequence was truncated meanwhile); WINDOW_PASSED (`begin` is before the
        tokens that the window holds); KV_LOST; TOO_MANY_CALLS.
        """
        return self._client._materialize(Reading(self, layer, begin, end), timeout)

    def __enter__(self) -> Sequence:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if self.freed:
            return
        try:
            self.free()
        except PagodaError:
            if error is None:
                raise


present(Sequence.fork, _sequences.fork, skip=2)


class Pin:
    """A pin that this client made. A `with` block ends it at its end."""

    def __init__(self, client: Client, pinned: values.Pinned) -> None:
        self._client = client
        self.pin_id = pinned.pin_id
        """0 if no block of the prefix is cached: then there is no pin."""
        self.pinned_tokens = pinned.pinned_tokens
        self.blocks = pinned.blocks
        """The pinned blocks over all windows, including blocks that other pins also hold."""

    def __repr__(self) -> str:
        return f"Pin(pin_id={self.pin_id}, pinned_tokens={self.pinned_tokens}, blocks={self.blocks})"

    def unpin(self) -> None:
        """Ends the pin. Errors: UNKNOWN_PIN (its lease is over, or another client ended it)."""
        self._client.unpin(self.pin_id)

    def __enter__(self) -> Pin:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if not self.pin_id:
            return
        try:
            self.unpin()
        except PagodaError:
            if error is None:
                raise


class Batch(Recorder):
    """Operations that run in one call, in order. Each succeeds or fails by itself. Operations of
    other clients can run between those of a long batch.

    A `with` block sends the batch at its end and raises BatchFailed if operations failed. If the
    block raises, nothing is sent. Without a block, call `send`: it raises only errors of the whole
    batch. Each Pending has its own error.
    """

    def __init__(self, client: Client, step: int | None, completed_step: int | None) -> None:
        super().__init__(client.timeout)
        self._client = client
        self._steps = (step, completed_step)

    sequence = _opened_later(_sequences.open_sequence)

    def fork(self, sequence: SequenceView) -> Sequence:
        child = Sequence(self._client)
        self._record(_sequences.fork(sequence, child))
        return child

    def send(self) -> None:
        """Runs the batch. Raises only errors of the whole batch: UNKNOWN_SESSION, STEP_BACKWARDS,
        BATCH_TOO_LARGE (above 4,096 operations), ..."""
        self._client._send(*self._seal(), *self._steps)

    def __enter__(self) -> Batch:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if error is None:
            self.send()
            raise_failures(self._pending)


present(Batch.fork, _sequences.fork)


class Client(SessionView):
    """A session with a daemon. pagoda.connect opens it. A thread renews its lease until it is
    closed.

    Thread-safe, but use a sequence, a batch or a watch in one thread at a time. Closing the client
    frees all its sequences and raw blocks. Committed blocks stay cached. Do not use it after
    os.fork().
    """

    def __init__(self, channel: grpc.Channel, calls: Calls, opened: Any, timeout: float, rings: Rings | None = None) -> None:
        """Called by pagoda.connect. `rings`: the way of the batches; None: gRPC."""
        super().__init__(opened, timeout)
        self._rings = rings
        self._channel = channel
        self._calls = calls
        self._keep_alive = KeepAlive(self._calls, self._session.ref, self._session.lease)
        self._closed = False
        weakref.finalize(self, self._keep_alive.stopped.set)

    @property
    def session_error(self) -> PagodaError | None:
        """The error that ended the session, if the daemon refused to renew its lease; else None."""
        return self._keep_alive.error

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
        """Returns a batch to be filled.

        `step`: the client's step that will use the blocks. `completed_step`: the last step whose
        kernels have finished. A slot that is released in a step is not reused before that step is
        completed. Both values also hold for later operations. They never go backwards.
        """
        return Batch(self, step, completed_step)

    def advance(self, *, step: int | None = None, completed_step: int | None = None) -> None:
        """Sets the steps, like batch, without an operation."""
        self._send([], self.timeout, step, completed_step)

    def wait(self, ticket: int, timeout: float | None = None, *, lane: Lane = Lane.MEMORY) -> None:
        """Waits until everything in the lane up to `ticket` has ended, with success or not. Returns
        at once if it has.

        `timeout`: seconds; default: the client's. `lane`: the lane that gave the ticket. Every
        `ready_ticket` is of Lane.MEMORY.
        Errors: UNKNOWN_TICKET, WAIT_TIMEOUT, DRAINING.
        """
        deadline = time.monotonic() + (self.timeout if timeout is None else timeout)
        while ticket > self.completed_tickets[lane]:
            pending = Pending(_operations.wait_for_ticket(ticket, lane=lane))
            try:
                self._send([pending], min(max(deadline - time.monotonic(), 0.0), MAX_WAIT) + self.timeout)
                pending.result()
            except PagodaError as error:
                if time.monotonic() >= deadline or not was_cut_short(error):
                    raise

    def status(self) -> Any:
        """Returns a consistent snapshot of the status of the daemon and of this client's cache: the
        message GetStatusResponse, whose fields `proto/pagoda/v1/admin.proto` explains. Enum fields
        are integers, which compare equal to Tier, Medium, MemoryKind and MemoryPages.

        It is for operators: with tenants configured, only operators may call it. An engine that
        asks whether a prompt fits calls query_capacity instead.
        """
        return self._unary(self._calls.get_status, v1.GetStatusRequest(cache=self.cache.name))

    def reset_prefix_cache(self, *, timeout: float | None = None) -> int:
        """Removes every cached prefix of all sessions from this client's cache. Returns how many
        blocks left it.

        `timeout`: seconds; default: the client's. A large cache takes longer than most calls.
        """
        request = v1.ResetPrefixCacheRequest(cache=self.cache.name)
        return int(self._unary(self._calls.reset_prefix_cache, request, timeout).removed_blocks)

    def caches(self) -> Caches:
        """Returns the daemon's caches and the free memory for more. A tenant's client sees its own
        caches and those that no tenant owns."""
        return Caches.take(self._unary(self._calls.list_caches, v1.ListCachesRequest()))

    def drop_cache(self, name: str, *, force: bool = False) -> int:
        """Drops a cache that a client opened, and frees its memory. Returns how many sessions ended
        with it.

        `force`: drop the cache even if it has sessions. Their later calls raise SessionGone.
        Errors: UNKNOWN_CACHE; CACHE_IN_USE (`force` is False and the cache has sessions, or slots
        that dead sessions' clients could still write); INVALID_ARGUMENT (the cache is from the
        daemon's configuration); PERMISSION_DENIED (with tenants, only operators drop caches).
        """
        return int(self._unary(self._calls.drop_cache, v1.DropCacheRequest(name=name, force=force)).ended_sessions)

    def close(self) -> None:
        """Ends the session and closes the connection. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        if self._rings is not None:
            self._rings.close()
        self._keep_alive.stopped.set()
        try:
            self._unary(self._calls.close_session, v1.CloseSessionRequest(session=self._session.ref))
        except SessionGone:
            pass
        finally:
            self._channel.close()  # Also ends a keep-alive call that waits for the connection.
            self._keep_alive.join()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        try:
            self.close()
        except PagodaError:
            if error is None:
                raise

    def _run(self, call: Call[R]) -> R:
        pending = Pending(call)
        self._send([pending], self.timeout)
        return pending.result()

    def _send(self, pending: list[Pending[Any]], timeout: float, step: int | None = None, completed_step: int | None = None) -> None:
        request = self._session.request(pending, step, completed_step)
        try:
            response = self._execute(request, timeout)
        except PagodaError as error:
            for one in pending:
                one._abandon(error)
            raise
        self._session.settle(request, pending, response.result)

    def _execute(self, request: BatchRequest, timeout: float) -> Any:
        """Sends a batch, and sends it again if its answer is lost: the daemon runs it only once."""
        deadline = time.monotonic() + timeout
        # A wait would delay the batches of other threads in the rings.
        if self._rings is not None and request.retry_id and not request.waits:
            if (answer := self._rings.execute(request, timeout)) is not None:
                return answer
        for tries_left in reversed(range(TRIES)):
            try:
                return self._unary(self._calls.execute, request, deadline - time.monotonic())
            except PagodaError as error:
                if not tries_left or error.reason or not errors.is_broken(error) or not request.retry_id:
                    raise
                if not self._connected_within(min(RECONNECT, deadline - time.monotonic())):
                    raise

    def _connected_within(self, seconds: float) -> bool:
        """Whether the daemon can be reached. Sends a keep-alive call that waits for the connection,
        because only a waiting call makes gRPC reconnect."""
        try:
            self._calls.keep_alive(v1.KeepAliveRequest(session=self._session.ref), timeout=seconds, wait_for_ready=True)
        except grpc.RpcError as error:
            return errors.was_connected(errors.of_call(error))
        except ValueError:  # See _unary.
            return False
        return True

    def _materialize(self, reading: Reading, timeout: float | None) -> Materialized:
        deadline = time.monotonic() + (self.timeout if timeout is None else timeout)
        while True:
            try:
                self._read(reading, deadline - time.monotonic())
                return reading.result()
            except PagodaError as error:
                if (final := reading.failed(error)) is not None:
                    raise final from None

    def _read(self, reading: Reading, timeout: float) -> None:
        stream = self._unary(self._calls.materialize, reading.request(self._session.ref), timeout)
        try:
            for message in stream:
                reading.take(message)
        except grpc.RpcError as error:
            raise errors.of_call(error) from None

    def _unary(self, call: Any, request: Any, timeout: float | None = None) -> Any:
        try:
            return call(request, timeout=self.timeout if timeout is None else timeout)
        except grpc.RpcError as error:
            raise errors.of_call(error) from None
        except ValueError:
            if not self._closed:
                raise
            # Another thread has closed this client, and gRPC refuses calls on a closed channel.
            raise errors.Unavailable(errors.Details(grpc.StatusCode.UNAVAILABLE, "this client is closed")) from None


def connect(endpoint: str | None = None, *, name: str | None = None, lease: float | None = None, timeout: float = 10.0,
            token: str | None = None, ca_file: str | None = None, certificate_file: str | None = None,
            key_file: str | None = None, model: str | None = None, cache: str | None = None, transport: str | None = None) -> Client:
    """Opens a session.

    `endpoint`: "host:port" or "unix:/path"; default: the environment's PAGODA_ENDPOINT, else
    127.0.0.1:7070. `name`: the client's name for operators; default: the program's name. `lease`:
    seconds that the session outlives its last keep-alive call; default: the daemon's. `timeout`:
    seconds to wait for the session, and then for each answer.

    `token`: the caller's bearer token. `ca_file`: the CA that signed the daemon's certificate; with
    it, TCP uses TLS. `certificate_file`, `key_file`: the client's certificate and key, if the
    daemon asks for them. The files are PEM and are read now. Defaults come from the environment:
    PAGODA_TOKEN_FILE (its first line is the token), PAGODA_CA, PAGODA_CERTIFICATE, PAGODA_KEY.
    ValueError: the files do not fit together, or the token would go to another machine in
    plaintext.

    `model`: the model whose KV the caller reads and writes, in the form of
    CacheInfo.model_fingerprint: "NAME@REVISION" of the daemon's cache.model. The daemon refuses the
    session if its cache is for another or an unknown model. None: no check.

    `cache`: the name of the daemon's cache; None: the only one.

    `transport`: how batches get to the daemon. "auto": on a Unix socket through shared memory, if
    the daemon and this package have that; otherwise over gRPC. "grpc": always over gRPC. "ring":
    through shared memory, or raise. Default: the environment's PAGODA_TRANSPORT, else "auto".

    Errors: CannotMap (transport "ring": the package has no native extension, or the daemon no
    rings); Unavailable (no daemon answers), TOO_MANY_SESSIONS, DRAINING, UNAUTHENTICATED,
    INVALID_ARGUMENT (a lease above the daemon's maximum), MODEL_MISMATCH, CACHE_NOT_NAMED (there
    are several caches), UNKNOWN_CACHE.
    """
    credentials = Credentials.choose(token, ca_file, certificate_file, key_file)
    chosen = choose(transport)
    request = v1.OpenSessionRequest(client_name=client_name(name), lease_ms=values.optional_milliseconds(lease),
                                    model_fingerprint=model or "", cache=cache or "")
    channel = credentials.channel(resolve(endpoint), grpc)
    try:
        calls = Calls(channel, credentials.metadata)
        deadline = time.monotonic() + timeout
        try:
            opened = calls.open_session(request, timeout=timeout)
        except grpc.RpcError as error:
            if not is_slow(error):
                raise
            opened = calls.open_session(request, timeout=deadline - time.monotonic(), wait_for_ready=True)
        try:
            rings = open_rings(chosen, SessionRef.take(opened), is_local=is_unix_socket(resolve(endpoint)))
        except PagodaError:
            calls.close_session(v1.CloseSessionRequest(session=opened.session), timeout=timeout)
            raise
        return Client(channel, calls, opened, timeout, rings)
    except grpc.RpcError as error:
        channel.close()
        raise errors.of_call(error) from None
    except PagodaError:
        channel.close()
        raise


def _ask(endpoint: str | None, credentials: Credentials, timeout: float, method: str, request: Any) -> Any:
    """Makes one call over its own connection."""
    channel = credentials.channel(resolve(endpoint), grpc)
    try:
        return getattr(Calls(channel, credentials.metadata), method)(request, timeout=timeout)
    except grpc.RpcError as error:
        raise errors.of_call(error) from None
    finally:
        channel.close()


def open_cache(endpoint: str | None, name: str, *, identity: CacheIdentity, layers: Iterable[Layers], tokens_per_block: int,
               host: Size | None = None, gpu: Size | None = None, disk: Size | None = None, eviction_policy: str = "", tenant: str = "",
               timeout: float = 10.0, token: str | None = None, ca_file: str | None = None, certificate_file: str | None = None,
               key_file: str | None = None) -> OpenedCache:
    """Opens a cache with the caller's own layout, in a daemon that has memory for such caches
    (`pagodad --memory 8GiB`). If a cache of that name with the same identity, tokens per block and
    layers exists, finds it instead. connect(cache=name) then opens a session in it. The cache
    outlives this process. It is dropped when it has had no session for the daemon's memory.linger.

    `endpoint`: as in connect. `name`: 1 to 64 letters, digits, '-', '_' or '.'. `identity`: the
    model of the KV, and how the KV is stored. `layers`: groups of equal layers in the model's
    order: Layers(...), Layers.key_only(...), Layers.opaque(...). `tokens_per_block`: a power of
    two, 1 to 1,024.

    `gpu`, `host`, `disk`: the sizes of the tiers. The first one given is the tier where engines
    compute or copy from. A disk tier needs a host tier above it. A size is bytes, as an integer or
    as "8GiB", or a share of the free memory, "50%". Without any size: half of the free host memory.
    `eviction_policy`: one of the daemon's; "": the daemon's default. `tenant`: the tenant that owns
    the cache, if an operator opens it. `timeout`: seconds to wait for the answer. The rest as in
    connect.

    Errors: CACHE_MISMATCH (the cache of that name has another identity, other layers or another
    tenant), OUT_OF_MEMORY (the daemon's or the tenant's memory budget is too small),
    TOO_MANY_CACHES, TOO_MANY_CALLS, THREADS_EXHAUSTED, INVALID_ARGUMENT, DRAINING,
    UNAUTHENTICATED, PERMISSION_DENIED, Unavailable. A refused call changes nothing. ValueError: an
    invalid size or dtype.
    """
    request = caches.opening(name, identity=identity, layers=layers, tokens_per_block=tokens_per_block, host=host, gpu=gpu, disk=disk,
                             eviction_policy=eviction_policy, tenant=tenant)
    return OpenedCache.take(_ask(endpoint, Credentials.choose(token, ca_file, certificate_file, key_file), timeout, "open_cache", request))


def list_caches(endpoint: str | None = None, *, timeout: float = 10.0, token: str | None = None, ca_file: str | None = None,
                certificate_file: str | None = None, key_file: str | None = None) -> Caches:
    """Like Client.caches, without a session."""
    return Caches.take(_ask(endpoint, Credentials.choose(token, ca_file, certificate_file, key_file), timeout, "list_caches",
                            v1.ListCachesRequest()))


def drop_cache(endpoint: str | None, name: str, *, force: bool = False, timeout: float = 10.0, token: str | None = None,
               ca_file: str | None = None, certificate_file: str | None = None, key_file: str | None = None) -> int:
    """Like Client.drop_cache, without a session."""
    return int(_ask(endpoint, Credentials.choose(token, ca_file, certificate_file, key_file), timeout, "drop_cache",
                    v1.DropCacheRequest(name=name, force=force)).ended_sessions)
