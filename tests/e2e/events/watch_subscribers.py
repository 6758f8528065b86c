"""Subscribers with bad habits, as threads that record what they receive. watch_round.py starts
them."""

import random
import threading
import time

import grpc
from google.rpc import error_details_pb2
from pagoda_client import authorized, call_status, connect
from pagoda.v1 import events_pb2
from watch_history import End, History, Message, Stream, View

WATCH = "/pagoda.v1.EventService/Watch"
MOST_SECONDS = 60
# For a reader that has stopped, gRPC accepts only events that fit into this HTTP/2 window and into
# 64 KiB at the sender.
SMALL_WINDOW = (("grpc.http2.lookahead_bytes", 4096), ("grpc.http2.bdp_probe", 0))
UNREAD_EVENTS = 1000


class Parser:
    """Parses messages. It parses a message that several subscribers get only once."""

    def __init__(self):
        self._parsed = {}

    def __call__(self, data):
        if (message := self._parsed.get(data)) is None:
            message = self._parsed[data] = events_pb2.WatchResponse.FromString(data)
        return message


class Stage:
    """What the subscribers of a round share."""

    def __init__(self, log_events):
        self.parse = Parser()
        self.log_events = log_events  # The log keeps so many events.
        self.calm = threading.Event()  # No more bad habits: read up to `target`, and stop.
        self.target = 0
        self.revision = 0  # The last revision that the reference received.


class Subscriber(threading.Thread):
    """Watches, and follows its habit, until the stage is calm. `request` has the fields of the
    first WatchRequest, which it also uses to begin anew if it cannot resume.

    Habits: "steady"; "cuts" its connection through `proxy`, and resumes; "cancels" its call, and
    resumes; "stalls" until the log has passed it; "leaves", and joins anew.
    """

    def __init__(self, name, stage, address, *, habit="steady", seed=0, token=None, caller=None, proxy=None, **request):
        super().__init__(name=name, daemon=True)
        self._stage = stage
        self._request = events_pb2.WatchRequest(**request)
        self._habit = habit
        self._proxy = proxy
        self._rng = random.Random(seed)
        self._channel = connect(address, [("grpc.use_local_subchannel_pool", 1), *(SMALL_WINDOW if habit == "stalls" else ())])
        self._watch = (authorized(self._channel, token) if token else self._channel).unary_stream(
            WATCH, request_serializer=events_pb2.WatchRequest.SerializeToString)
        self.history = History(name, View.of(self._request, caller), [])
        self.error = None
        self.position = None  # The last revision received. None if the next stream cannot resume.
        self._patience = 0

    def run(self):
        try:
            while not self._is_over():
                self._read_a_stream()
        except BaseException as error:
            self.error = error
        finally:
            self._channel.close()

    def _is_over(self):
        return self._stage.calm.is_set() and self.position is not None and self.position >= self._stage.target

    def _next_request(self):
        request = events_pb2.WatchRequest()
        request.CopyFrom(self._request)
        if self.position is not None:
            request.snapshot = False
            request.from_revision, request.epoch = self.position + 1, self._epoch
        return request

    def _read_a_stream(self):
        stream = Stream(self._next_request(), time.monotonic())
        self.history.streams.append(stream)
        call = self._watch(stream.request, timeout=MOST_SECONDS, wait_for_ready=True)
        self._patience = self._rng.randrange(1, 5) if self._habit == "stalls" else self._rng.randrange(4, 20)
        reason = None
        in_snapshot = False
        try:
            for data in call:
                body = self._stage.parse(data)
                stream.messages.append(Message(time.monotonic(), body))
                in_snapshot = (in_snapshot or body.snapshot_begin) and not body.snapshot_end
                self.position, self._epoch = None if in_snapshot else body.revision, body.epoch
                self._tell(body.revision)
                if (reason := self._after_a_message(in_snapshot)) is not None:
                    break
        except grpc.RpcError as error:
            self._end_of(stream, error)
            return
        if reason == "cut":
            self._read_what_is_left(stream, call)
        else:
            call.cancel()
        stream.end = End(time.monotonic(), reason or "ENDED")
        self._between_streams(reason)

    def _tell(self, revision):
        """Called with each revision received. A subclass reports it."""

    def _after_a_message(self, in_snapshot):
        """The end of the stream, if this is it."""
        if self._is_over():
            return "over"
        if self._habit == "steady" or self._stage.calm.is_set():
            return None
        self._patience -= 1
        if self._patience > 0 or in_snapshot and self._rng.random() < 0.5:
            return None
        if self._habit == "stalls":
            self._wait_for(self.position or 0, self._stage.log_events + UNREAD_EVENTS)
            self._patience = 50  # After the messages under way, the daemon's reason arrives.
            return None
        if self._habit == "cuts":
            self._proxy.cut()
            return "cut"
        return "cancelled"

    def _read_what_is_left(self, stream, call):
        """Reads the messages that arrived before the cut. Only then the call ends."""
        try:
            for data in call:
                body = self._stage.parse(data)
                stream.messages.append(Message(time.monotonic(), body))
                self.position = None if body.snapshot_begin or self.position is None and not body.snapshot_end else body.revision
        except grpc.RpcError:
            pass

    def _between_streams(self, reason):
        if reason == "over":
            return
        if self._habit == "leaves":
            self.position = None
        elif self.position is not None:
            away = self._rng.choice([0, 10, self._stage.log_events // 4, self._stage.log_events + 1])
            self._wait_for(self.position, away)

    def _wait_for(self, revision, more):
        """Waits until so many more revisions have happened, or the stage is calm."""
        while self._stage.revision < revision + more and not self._stage.calm.wait(0.005):
            pass

    def _end_of(self, stream, error):
        """A stream that the daemon ended, or that a cut connection took with it."""
        if error.code() == grpc.StatusCode.UNAVAILABLE and self._proxy is not None and not _has_reason(error):
            stream.end = End(time.monotonic(), "cut")
            return
        metadata = {entry.key: entry.value for entry in error.trailing_metadata() or ()}
        stream.end = End(time.monotonic(), _reason(error), *_bounds(error, metadata))
        self.position = None  # The next stream begins anew.
        if stream.end.reason != "REVISION_COMPACTED":
            raise error


def _has_reason(error):
    return any(entry.key == "grpc-status-details-bin" for entry in error.trailing_metadata() or ())


def _info(error):
    for detail in call_status(error).details:
        info = error_details_pb2.ErrorInfo()
        if detail.Unpack(info):
            return info
    raise AssertionError(f"an error without a reason: {error}")


def _reason(error):
    return _info(error).reason if _has_reason(error) else error.code().name


def _bounds(error, metadata):
    told = _info(error).metadata if _has_reason(error) else {}
    return (int(told.get("oldest_revision", 0)), int(told.get("next_revision", 0)))


class Reference(Subscriber):
    """Sees everything from a snapshot on, and tells the stage how far it is."""

    def __init__(self, stage, address, control, **options):
        super().__init__("reference", stage, address, snapshot=True, **options)
        self._control = control

    def _tell(self, revision):
        self._stage.revision = revision
        self._control(revision)
