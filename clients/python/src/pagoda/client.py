"""The cache for programs that wait for its answers; pagoda.aio has the same for asyncio."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterable
from typing import Any, Concatenate, ParamSpec, TypeVar

import grpc

from pagoda import _operations, _sequences, _watch, caches, errors, values
from pagoda._batch import MAX_WAIT, Recorder, was_cut_short
from pagoda._call import Call, Pending, present
from pagoda._contract import Calls, v1
from pagoda._endpoint import RECONNECT, TRIES, Credentials, client_name, resolve
from pagoda._keep_alive import KeepAlive
from pagoda._sequences import SequenceView
from pagoda._session import SessionView, raise_failures
from pagoda.caches import CacheIdentity, Caches, Layers, OpenedCache, Size
from pagoda.errors import PagodaError, SessionGone
from pagoda.status import Status
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
    """A sequence of this session. Freed at the end of a `with` block."""

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
        """Waits until the slots of the tables may be read and written: until the copies of the match, of a fork or of a cut have ended. Costs
        nothing where they have.

        `timeout`: seconds; the client's where it is left out. Errors: WAIT_TIMEOUT; KV_LOST where a copy failed (KvLost: see there).
        """
        self._client.wait(self.ready_ticket, timeout)
        if (loss := self.loss) is not None:
            raise loss

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
    """A pin that this client made. Ended at the end of a `with` block."""

    def __init__(self, client: Client, pinned: values.Pinned) -> None:
        self._client = client
        self.pin_id = pinned.pin_id
        """0 where nothing of the prefix is cached: there is no pin."""
        self.pinned_tokens = pinned.pinned_tokens
        self.blocks = pinned.blocks
        """Over all windows, those that other pins hold too among them."""

    def unpin(self) -> None:
        """Ends the pin. Errors: UNKNOWN_PIN (its lease is over, or somebody ended it)."""
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
    """Operations that run in one call, in order. Each succeeds or fails by itself; between two of a long batch other clients' may come.

    A `with` block sends the batch at its end, and raises BatchFailed where operations failed; nothing is sent where the block raised.
    Without a block, `send` sends it and raises for the whole batch only: each Pending has its own error.
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
        """Runs the batch. Errors: those of the whole batch: UNKNOWN_SESSION, STEP_BACKWARDS, BATCH_TOO_LARGE (above 4,096 operations), ..."""
        self._client._send(*self._seal(), *self._steps)

    def __enter__(self) -> Batch:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if error is None:
            self.send()
            raise_failures(self._pending)


present(Batch.fork, _sequences.fork)


class Client(SessionView):
    """A session with a daemon; pagoda.connect opens one. Its lease is renewed in the background until it is closed.

    Thread-safe; a sequence, a batch or a watch of it belongs to one thread at a time. Closing it frees all its sequences and raw
    blocks; committed blocks stay cached. Not to be used after os.fork().
    """

    def __init__(self, channel: grpc.Channel, calls: Calls, opened: Any, timeout: float) -> None:
        """pagoda.connect does this."""
        super().__init__(opened, timeout)
        self._channel = channel
        self._calls = calls
        self._keep_alive = KeepAlive(self._calls, self._session.ref, self._session.lease)
        self._closed = False
        weakref.finalize(self, self._keep_alive.stopped.set)

    @property
    def session_error(self) -> PagodaError | None:
        """Why the session is gone, where a sign of life was refused."""
        return self._keep_alive.error

    allocate_blocks = _method(_operations.allocate_blocks)
    free_blocks = _method(_operations.free_blocks)
    match = _method(_operations.match)
    query_capacity = _method(_operations.query_capacity)
    offload = _method(_operations.offload)
    prefetch = _method(_operations.prefetch)
    unpin = _method(_operations.unpin)
    list_pins = _method(_operations.list_pins)
    invalidate = _method(_operations.invalidate)
    set_retention = _method(_operations.set_retention)
    append_step = _method(_sequences.append_step)
    pools = _method(_operations.pools)
    sequence = _opened(_sequences.open_sequence)
    pin = _pinned(_operations.pin)
    watch = _watched(_watch.reading)

    def batch(self, *, step: int | None = None, completed_step: int | None = None) -> Batch:
        """A batch to be filled.

        `step`: the client's step that will use the blocks; `completed_step`: the last one whose kernels have finished. A slot that is given
        back in a step is not handed out again before that step is completed. Both hold for what comes after, too, and never go backwards.
        """
        return Batch(self, step, completed_step)

    def advance(self, *, step: int | None = None, completed_step: int | None = None) -> None:
        """Says the steps, as batch does, without an operation."""
        self._send([], self.timeout, step, completed_step)

    def wait(self, ticket: int, timeout: float | None = None, *, lane: Lane = Lane.MEMORY) -> None:
        """Waits until everything in the lane up to `ticket` has ended, well or not. Costs nothing where it has.

        `timeout`: seconds; the client's where it is left out. `lane`: the one that gave the ticket;
        every `ready_ticket` is of Lane.MEMORY.
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

    def status(self) -> Status:
        """One consistent look at the daemon and at this client's cache."""
        return Status.take(self._unary(self._calls.get_status, v1.GetStatusRequest(cache=self.cache.name)))

    def reset_prefix_cache(self, *, timeout: float | None = None) -> int:
        """Forgets every cached prefix of every session of this client's cache. Returns how many blocks left it.

        `timeout`: seconds; the client's where it is left out. A large cache takes longer than most calls.
        """
        request = v1.ResetPrefixCacheRequest(cache=self.cache.name)
        return int(self._unary(self._calls.reset_prefix_cache, request, timeout).removed_blocks)

    def caches(self) -> Caches:
        """The daemon's caches, and the memory that is left for more. A tenant's client sees its own, and those that are nobody's."""
        return Caches.take(self._unary(self._calls.list_caches, v1.ListCachesRequest()))

    def drop_cache(self, name: str, *, force: bool = False) -> int:
        """Ends a cache that a client opened, and gives its memory back. Returns how many sessions ended with it.

        `force`: also where it has sessions; each of their calls then raises SessionGone. Errors: UNKNOWN_CACHE; CACHE_IN_USE (it has sessions, or
        slots that those of dead clients could still write, and `force` is False); INVALID_ARGUMENT (it is the daemon's own);
        PERMISSION_DENIED (where there are tenants, operators alone drop caches).
        """
        return int(self._unary(self._calls.drop_cache, v1.DropCacheRequest(name=name, force=force)).ended_sessions)

    def close(self) -> None:
        """Ends the session and the connection. The second time it does nothing."""
        if self._closed:
            return
        self._closed = True
        self._keep_alive.stopped.set()
        try:
            self._unary(self._calls.close_session, v1.CloseSessionRequest(session=self._session.ref))
        except SessionGone:
            pass
        finally:
            self._channel.close()  # It ends a sign of life that still waits for the connection.
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

    def _execute(self, request: Any, timeout: float) -> Any:
        """Sends a batch, and where its answer is lost again: the daemon runs it once."""
        deadline = time.monotonic() + timeout
        for tries_left in reversed(range(TRIES)):
            try:
                return self._unary(self._calls.execute, request, deadline - time.monotonic())
            except PagodaError as error:
                if not tries_left or error.reason or not errors.is_broken(error) or not request.batch.retry_id:
                    raise
                if not self._connected_within(min(RECONNECT, deadline - time.monotonic())):
                    raise

    def _connected_within(self, seconds: float) -> bool:
        """Whether the daemon can be reached: asked with a sign of life, for a call that waits is what makes gRPC mend a connection."""
        try:
            self._calls.keep_alive(v1.KeepAliveRequest(session=self._session.ref), timeout=seconds, wait_for_ready=True)
        except grpc.RpcError as error:
            return errors.was_connected(errors.of_call(error))
        except ValueError:  # As in _unary.
            return False
        return True

    def _unary(self, call: Any, request: Any, timeout: float | None = None) -> Any:
        try:
            return call(request, timeout=self.timeout if timeout is None else timeout)
        except grpc.RpcError as error:
            raise errors.of_call(error) from None
        except ValueError:
            if not self._closed:
                raise
            # Another thread has closed this client, and gRPC takes no calls on a closed channel.
            raise errors.Unavailable(errors.Details(grpc.StatusCode.UNAVAILABLE, "this client is closed")) from None


def connect(endpoint: str | None = None, *, name: str | None = None, lease: float | None = None, timeout: float = 10.0,
            token: str | None = None, ca_file: str | None = None, certificate_file: str | None = None,
            key_file: str | None = None, model: str | None = None, cache: str | None = None) -> Client:
    """Opens a session.

    `endpoint`: "host:port" or "unix:/path"; else the environment's PAGODA_ENDPOINT; else 127.0.0.1:7070. `name`: shown to operators; else the
    program's. `lease`: seconds that the session outlives its last sign of life; else the daemon's default. `timeout`: seconds to wait for
    the session, and then for each answer.

    `token`: says who calls; `ca_file`: who signed the daemon's certificate, with it TCP is TLS; `certificate_file`, `key_file`: the client's own,
    where the daemon asks for them. PEM files, read now. What is left out comes from the environment: PAGODA_TOKEN_FILE (the token is its first line),
    PAGODA_CA, PAGODA_CERTIFICATE, PAGODA_KEY. ValueError: they do not go together, or the token would go to another machine in plaintext.

    `model`: whose KV the caller reads and writes, as CacheInfo.model_fingerprint has it: "NAME@REVISION" of the daemon's cache.model. The
    daemon refuses the session where its cache is for another model, or where it does not know for which. None: not said, and not checked.

    `cache`: which of the daemon's caches; None: the only one.

    Errors: Unavailable (nobody answers), TOO_MANY_SESSIONS, DRAINING, UNAUTHENTICATED, INVALID_ARGUMENT (a lease above the daemon's maximum),
    MODEL_MISMATCH, CACHE_NOT_NAMED (there are several caches), UNKNOWN_CACHE.
    """
    credentials = Credentials.choose(token, ca_file, certificate_file, key_file)
    request = v1.OpenSessionRequest(client_name=client_name(name), lease_ms=values.optional_milliseconds(lease),
                                    model_fingerprint=model or "", cache=cache or "")
    channel = credentials.channel(resolve(endpoint), grpc)
    try:
        calls = Calls(channel, credentials.metadata)
        return Client(channel, calls, calls.open_session(request, timeout=timeout), timeout)
    except grpc.RpcError as error:
        channel.close()
        raise errors.of_call(error) from None


def _ask(endpoint: str | None, credentials: Credentials, timeout: float, method: str, request: Any) -> Any:
    """One call over a connection of its own."""
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
    """Opens a cache of the caller's own layout in a daemon that has memory for such (`pagodad --memory 8GiB`), or finds the one that is there:
    the same name, identity, tokens per block and layers. connect(cache=name) then opens a session in it. It stays when this process
    ends; where it has had no session for the daemon's memory.linger it ends.

    `endpoint`: as in connect. `name`: 1 to 64 letters, digits, '-', '_' or '.'. `identity`: whose KV it is, and how it is stored.
    `layers`: groups of equal layers, in the model's order: Layers(...), Layers.key_only(...), Layers.opaque(...). `tokens_per_block`: a power of
    two, 1 to 1,024.

    `gpu`, `host`, `disk`: how much of each the cache takes; the first that is given is the tier where engines compute or copy from, and
    a tier on disk needs one on the host above it. Bytes, as an integer or as "8GiB", or a share of what is free, "50%". Without any: half of
    what is free on the host. `eviction_policy`: one of the daemon's; "": its first. `tenant`: whose cache it is, where an operator opens it.
    `timeout`: seconds to wait for the answer; the rest as in connect.

    Errors: CACHE_MISMATCH (the name is that of a cache with another identity, other layers or another tenant), OUT_OF_MEMORY (the daemon's
    budget, or the tenant's, does not hold it), TOO_MANY_CACHES, TOO_MANY_CALLS, INVALID_ARGUMENT, DRAINING, UNAUTHENTICATED,
    PERMISSION_DENIED, Unavailable. A refused call leaves nothing behind. ValueError: a size or a dtype that is none.
    """
    request = caches.opening(name, identity=identity, layers=layers, tokens_per_block=tokens_per_block, host=host, gpu=gpu, disk=disk,
                             eviction_policy=eviction_policy, tenant=tenant)
    return OpenedCache.take(_ask(endpoint, Credentials.choose(token, ca_file, certificate_file, key_file), timeout, "open_cache", request))


def list_caches(endpoint: str | None = None, *, timeout: float = 10.0, token: str | None = None, ca_file: str | None = None,
                certificate_file: str | None = None, key_file: str | None = None) -> Caches:
    """As Client.caches, without a session."""
    return Caches.take(_ask(endpoint, Credentials.choose(token, ca_file, certificate_file, key_file), timeout, "list_caches",
                            v1.ListCachesRequest()))


def drop_cache(endpoint: str | None, name: str, *, force: bool = False, timeout: float = 10.0, token: str | None = None,
               ca_file: str | None = None, certificate_file: str | None = None, key_file: str | None = None) -> int:
    """As Client.drop_cache, without a session."""
    return int(_ask(endpoint, Credentials.choose(token, ca_file, certificate_file, key_file), timeout, "drop_cache",
                    v1.DropCacheRequest(name=name, force=force)).ended_sessions)
