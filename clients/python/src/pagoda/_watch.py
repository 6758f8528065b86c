"""The stream of the cache's changes. It reconnects after a broken connection, and reports missed
events."""

import collections
import math
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any, Literal, TypeAlias

import grpc

from pagoda import errors
from pagoda._contract import Calls
from pagoda._endpoint import Credentials, resolve
from pagoda._position import StreamPosition, Wanted
from pagoda.errors import PagodaError, WatchRefused
from pagoda.events import EVENT_TYPES, Created, Event, Item, Removed, SnapshotBegin, SnapshotEnd, Stored, Updated
from pagoda.values import Tier


Content: TypeAlias = Literal["tokens", "hashes"]
"""How much of a block's content the events of a watch have."""
_CONTENTS = {"tokens": 1, "hashes": 2}  # EVENT_CONTENT_TOKENS, EVENT_CONTENT_HASHES


class Reader:
    """A watch without its transport: the items that wait to be read, and the recovery of a broken
    stream."""

    def __init__(self, wanted: Wanted, reconnect: float | None) -> None:
        self.position = StreamPosition(wanted)
        self.revision = self.position.revision
        self.epoch = wanted.epoch
        self.renews = wanted.renews
        self._ready: collections.deque[Item] = collections.deque()
        self._in_snapshot = False
        self._missing: PagodaError | None = None
        self._reconnect = reconnect
        self._deadline = 0.0
        self._delay = 0.0

    def of_cache(self, name: str | None) -> "Reader":
        """Selects the daemon's cache of that name; None or "": the only one. Returns this
        reader."""
        self.position.cache = name or ""
        return self

    def accept(self, message: Any) -> None:
        try:
            self._ready.extend(self.position.accept(message))
        except PagodaError as missing:
            self._missing = missing
            raise
        if not self._ready:
            self.epoch, self.revision = self.position.epoch, self._passed()

    def next(self) -> Item | None:
        """Returns the next item, or None if a message must arrive first. Once events are missing
        that no snapshot replaces, it always raises."""
        if self._missing is not None:
            raise self._missing
        if not self._ready:
            return None
        item = self._ready.popleft()
        if isinstance(item, SnapshotBegin | SnapshotEnd):
            self._in_snapshot = isinstance(item, SnapshotBegin)
        self.epoch, self.revision = item.epoch, self._passed()
        return item

    def _passed(self) -> int:
        """The last revision before the next item. It is 0 in an incomplete snapshot, which cannot
        be resumed."""
        if self._in_snapshot:
            return 0
        following = self._ready[0] if self._ready else None
        return following.revision - 1 if isinstance(following, Created | Stored | Updated | Removed) else self.position.revision

    def broke(self) -> None:
        """The stream broke. The time for reconnecting starts now."""
        self.position.broke()
        self._deadline = time.monotonic() + (math.inf if self._reconnect is None else self._reconnect)
        self._delay = 0.0

    def time_left(self) -> float:
        """Seconds until the reconnect attempts have taken too long."""
        return max(self._deadline - time.monotonic(), 0.0)

    def next_delay(self, error: PagodaError) -> float:
        """Seconds to wait before the next attempt. Raises `error` if an attempt cannot help, or if
        the attempts have taken too long."""
        if isinstance(error, WatchRefused):
            self.position.refuse(error)
        elif not errors.is_broken(error) or self.time_left() == 0:
            raise error
        delay, self._delay = self._delay, min(max(2 * self._delay, 0.05), 2.0)
        return delay


def reading(*, from_revision: int | None = None, epoch: int = 0, snapshot: bool = False, resnapshot: bool = False,
            types: Iterable[type[Event]] = (), tiers: Iterable[Tier] = (), windows: Iterable[int] = (), tenant: str = "",
            progress: bool = False, reconnect: float | None = 60.0, content: Content = "tokens", chunk_tokens: int = 0) -> Reader:
    """Watches the cache's changes from now on, from a revision of an epoch (0: the current one),
    or, with `snapshot`, after all cached blocks. See Watch.

    `resnapshot`: if the watch cannot continue, because the daemon no longer has the next event or
    is another incarnation, it restarts with a snapshot (SnapshotBegin) instead of a Gap. A watch
    that began with a snapshot always does this.

    The filters must all match. `types`: Created, Stored, Updated, Removed. `tiers`: blocks stored
    there, moves from or to there, and events without a tier (removals, and changes of priority).
    `windows`: sizes in tokens, 0 for full attention. `tenant`: only events about its blocks.
    `content`: "tokens", or "hashes" for a router that compares hashes with those of block_hashes.
    Then only whole blocks are reported, and of them only the hash and the tiers. These fields have
    values: Created.capacity; Stored.blocks, and of a block `block_hash`, `tier` and `lower_tiers`;
    Updated.block_hash, `tier` and `lower_tiers`; Removed.reason, `block_hashes`, `whole_window` and
    `pools`. Every other field is 0, None, empty or default. Tails, changes of priority and ends of
    pins are left out. A Mirror needs "tokens", because it knows blocks by their ids.
    `chunk_tokens`: with "hashes", only the blocks that end a chunk of so many tokens, counted from
    the prompt's start; a multiple of the cache's tokens_per_block. 0: each whole block.

    `progress`: a Progress item for each message that shows nothing, so that a filtered watch
    reports its position.

    `reconnect`: seconds to retry a broken stream before its error is raised; None: forever.
    Errors: UNKNOWN_WINDOW, PERMISSION_DENIED (another tenant's name), INVALID_ARGUMENT
    (`chunk_tokens` is no multiple, or comes without "hashes"). Only at the start, and not with
    `resnapshot`: REVISION_COMPACTED, REVISION_IN_FUTURE, EPOCH_CHANGED (WatchRefused); later each
    is a Gap. ValueError: `snapshot` together with a revision or an epoch; another `content`.
    """
    if content not in _CONTENTS:
        raise ValueError(f"a watch has the content {' or '.join(map(repr, _CONTENTS))}, not {content!r}")
    shown = {"types": [EVENT_TYPES[kind] for kind in types], "tiers": list(tiers), "window_sizes": list(windows), "tenant": tenant,
             "content": _CONTENTS[content], "chunk_tokens": chunk_tokens}
    return Reader(Wanted(from_revision, epoch, snapshot, resnapshot, progress, shown), reconnect)


def ended() -> PagodaError:
    """The error for a stream that the daemon ended in good order, because it shuts down."""
    return errors.make(errors.Details(grpc.StatusCode.UNAVAILABLE, "the daemon ended the stream", "DRAINING"))


class Watch:
    """Iterates over events until it is closed. It resumes by itself after a broken stream.

    It misses no event after its creation. If events are missing, there is a Gap, or a new snapshot
    if one was requested. A snapshot is a SnapshotBegin, events, and a SnapshotEnd. A PagodaError
    with the code DATA_LOSS means that the daemon is faulty; the watch cannot be used any more. One
    thread iterates; any thread can close it.
    """

    def __init__(self, calls: Calls, reader: Reader, channel: grpc.Channel | None = None) -> None:
        self._watch = calls.watch
        self._channel = channel
        self._reader = reader
        self._closed = threading.Event()
        self._stream: Any = None
        try:
            self._begin()
        except WatchRefused as refused:
            if not reader.renews:
                raise
            self._mend(refused)

    @property
    def revision(self) -> int:
        """The last revision that the iteration has reached. A watch from the next revision
        continues from here. 0 within a snapshot."""
        return self._reader.revision

    @property
    def epoch(self) -> int:
        """The epoch of `revision`."""
        return self._reader.epoch

    def close(self) -> None:
        """Ends the iteration, in any thread."""
        self._closed.set()
        self._stream.cancel()
        if self._channel is not None:
            self._channel.close()

    def __iter__(self) -> Iterator[Item]:
        return self

    def __next__(self) -> Item:
        while not self._closed.is_set():
            item = self._reader.next()
            if item is not None:
                return item
            try:
                self._read()
            except PagodaError as error:
                self._mend(error)
        raise StopIteration

    def _read(self) -> None:
        """Processes one message."""
        try:
            self._reader.accept(next(self._stream))
        except StopIteration:
            raise ended() from None
        except grpc.RpcError as error:
            raise errors.of_call(error) from None

    def _begin(self, patience: float = math.inf, **options: Any) -> None:
        """Opens the stream and processes its first message, which the daemon sends at once. Gives
        up after `patience` seconds."""
        stream = self._stream = self._watch(self._reader.position.request(), **options)
        if self._closed.is_set():  # close() may have been called before this stream existed.
            stream.cancel()
        if patience == math.inf:
            return self._read()
        timer = threading.Timer(patience, stream.cancel)
        timer.start()
        try:
            self._read()
        finally:
            timer.cancel()

    def _mend(self, error: PagodaError) -> None:
        self._reader.broke()
        while not self._closed.is_set():
            self._closed.wait(self._reader.next_delay(error))
            try:
                # Only a call that waits for the connection makes gRPC reconnect.
                return self._begin(self._reader.time_left(), wait_for_ready=True)
            except PagodaError as again:
                error = again if self._reader.time_left() > 0 else error
            except ValueError:  # The channel was closed meanwhile.
                self._closed.set()

    def __enter__(self) -> "Watch":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def watch(endpoint: str | None = None, *, from_revision: int | None = None, epoch: int = 0, snapshot: bool = False,
          resnapshot: bool = False, types: Iterable[type[Event]] = (), tiers: Iterable[Tier] = (), windows: Iterable[int] = (),
          tenant: str = "", progress: bool = False, reconnect: float | None = 60.0, token: str | None = None, ca_file: str | None = None,
          certificate_file: str | None = None, key_file: str | None = None, cache: str | None = None, content: Content = "tokens",
          chunk_tokens: int = 0) -> Watch:
    """Watches a daemon without a session, as routers do. The other arguments are those of
    Client.watch and pagoda.connect.

    `cache`: the name of the daemon's cache; None: the only one. Errors also: CACHE_NOT_NAMED,
    UNKNOWN_CACHE.
    """
    credentials = Credentials.choose(token, ca_file, certificate_file, key_file)
    reader = reading(from_revision=from_revision, epoch=epoch, snapshot=snapshot, resnapshot=resnapshot, types=types, tiers=tiers,
                     windows=windows, tenant=tenant, progress=progress, reconnect=reconnect, content=content,
                     chunk_tokens=chunk_tokens).of_cache(cache)
    channel = credentials.channel(resolve(endpoint), grpc)
    try:
        return Watch(Calls(channel, credentials.metadata), reader, channel)
    except BaseException:
        channel.close()
        raise
