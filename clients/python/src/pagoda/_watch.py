"""The stream of the cache's changes, read to the end of time: a broken connection is mended, and what was missed is said."""

import collections
import math
import threading
import time
from collections.abc import Iterator
from typing import Any

import grpc

from pagoda import errors
from pagoda._contract import Calls
from pagoda._endpoint import Credentials, resolve
from pagoda.errors import PagodaError, WatchRefused
from pagoda.events import Event, Gap, StreamPosition


class Reader:
    """What a watch does without its transport: items that wait to be read, where they come from, and how a broken stream is mended."""

    def __init__(self, from_revision: int | None, epoch: int, reconnect: float | None) -> None:
        self.position = StreamPosition(from_revision, epoch)
        self.revision = self.position.revision
        self.epoch = epoch
        self._ready: collections.deque[Event | Gap] = collections.deque()
        self._reconnect = reconnect
        self._deadline = 0.0
        self._delay = 0.0

    def accept(self, message: Any) -> None:
        self._ready.extend(self.position.accept(message))
        if not self._ready:
            self.epoch, self.revision = self.position.epoch, self.position.revision

    def next(self) -> Event | Gap | None:
        """The next item; None where a message has to come first."""
        if not self._ready:
            return None
        item = self._ready.popleft()
        self.epoch = item.epoch
        self.revision = item.next_revision - 1 if isinstance(item, Gap) else item.revision
        return item

    def broke(self) -> None:
        """The stream broke: from now on it is tried again."""
        self._deadline = time.monotonic() + (math.inf if self._reconnect is None else self._reconnect)
        self._delay = 0.0

    def time_left(self) -> float:
        """Seconds until the tries have taken too long."""
        return max(self._deadline - time.monotonic(), 0.0)

    def next_delay(self, error: PagodaError) -> float:
        """Seconds to wait before the next try; raises `error` where no try is worth it, or where they have taken too long."""
        if isinstance(error, WatchRefused):
            self.position.refuse(error)
        elif not errors.is_broken(error) or self.time_left() == 0:
            raise error
        delay, self._delay = self._delay, min(max(2 * self._delay, 0.05), 2.0)
        return delay


def ended() -> PagodaError:
    """The daemon ended the stream in good order: it shuts down."""
    return errors.make(errors.Details(grpc.StatusCode.UNAVAILABLE, "the daemon ended the stream", "DRAINING"))


class Watch:
    """Iterates over events, and over a Gap where some are missing, until it is closed; resumes by itself after a broken stream.

    From the moment it exists it misses nothing. One thread iterates; any may close it.
    """

    def __init__(self, calls: Calls, reader: Reader, channel: grpc.Channel | None = None) -> None:
        self._watch = calls.watch
        self._channel = channel
        self._reader = reader
        self._closed = threading.Event()
        self._stream: Any = None
        self._begin()

    @property
    def revision(self) -> int:
        """The last revision that the iteration has come to: a watch from the next one goes on where this one stands."""
        return self._reader.revision

    @property
    def epoch(self) -> int:
        """The epoch that `revision` belongs to."""
        return self._reader.epoch

    def close(self) -> None:
        """Ends the iteration, in whichever thread it is."""
        self._closed.set()
        self._stream.cancel()
        if self._channel is not None:
            self._channel.close()

    def __iter__(self) -> Iterator[Event | Gap]:
        return self

    def __next__(self) -> Event | Gap:
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
        """Takes one message."""
        try:
            self._reader.accept(next(self._stream))
        except StopIteration:
            raise ended() from None
        except grpc.RpcError as error:
            raise errors.of_call(error) from None

    def _begin(self, patience: float = math.inf, **options: Any) -> None:
        """Opens the stream and takes its first message, which the daemon sends at once; gives up after `patience` seconds."""
        stream = self._stream = self._watch(self._reader.position.request(), **options)
        if self._closed.is_set():  # Close may have come before there was this stream to cancel.
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
                # A call that waits for the connection is what makes gRPC mend it: without one nobody works on it.
                return self._begin(self._reader.time_left(), wait_for_ready=True)
            except PagodaError as again:
                error = again if self._reader.time_left() > 0 else error
            except ValueError:  # The channel was closed meanwhile.
                self._closed.set()

    def __enter__(self) -> "Watch":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def watch(endpoint: str | None = None, *, from_revision: int | None = None, epoch: int = 0,
          reconnect: float | None = 60.0, token: str | None = None, ca_file: str | None = None,
          certificate_file: str | None = None, key_file: str | None = None) -> Watch:
    """Watches a daemon without a session, as routers do; the rest as in Client.watch and pagoda.connect."""
    credentials = Credentials.choose(token, ca_file, certificate_file, key_file)
    channel = credentials.channel(resolve(endpoint), grpc)
    try:
        return Watch(Calls(channel, credentials.metadata), Reader(from_revision, epoch, reconnect), channel)
    except BaseException:
        channel.close()
        raise
