"""What the tests of rings share: a client of the Python package with rings of a daemon in plain
Python (fake_rings.py)."""

import contextlib

import pagoda
import pytest
from fake_rings import MapSocket, Pair
from pagoda import _rings
from pagoda._contract import v1
from pagoda._map_socket import SessionRef

SIZE = 4096
SECONDS = 30


def result_of(request):
    """A BatchResult for a batch: each sequence gets as many tokens as its id says."""
    made = v1.BatchResult(revision=request.batch.retry_id)
    for operation in request.batch.operations:
        kind = operation.WhichOneof("operation")
        result = getattr(made.results.add(), kind)
        result.SetInParent()
        if kind == "describe_sequence":
            result.token_count = operation.describe_sequence.sequence_id
    return made


def serve(pair, request):
    pair.reply(result_of(request))


def refuse(pair, request):
    pair.refuse(3, "not this one")


class Calls:
    """The calls over gRPC. Keeps the batches."""

    def __init__(self):
        self.batches = []
        self.keep_alive = self.close_session = lambda request, **options: None

    def execute(self, request, timeout):
        assert timeout > 0
        self.batches.append(request.batch)
        return v1.ExecuteResponse(result=result_of(request))


class AioCalls(Calls):
    def __init__(self):
        super().__init__()
        self.keep_alive = self.close_session = self._nothing

    async def _nothing(self, request, **options):
        return None

    async def execute(self, request, timeout):  # pylint: disable=invalid-overridden-method
        return super().execute(request, timeout)


class Channel:
    def close(self):
        """There is nothing."""


class AioChannel:
    async def close(self, grace):
        """There is nothing."""


class Setting:
    """A client with rings of a daemon that answers as `answer` says."""

    def __init__(self, tmp_path, answer=serve, *, size=SIZE, timeout=SECONDS):
        self.answer = answer
        self.seen = []  # The batches that came through rings.
        self.map_socket = MapSocket(tmp_path / "map.sock", lambda: Pair(size, self._answer))
        self.opened = v1.OpenSessionResponse(session={"session_id": 5, "token": 6, "token_high": 7}, lease_ms=1000_000,
                                             map_socket=self.map_socket.path)
        self.opened.cache.tokens_per_block = 4
        self.opened.cache.windows.add()
        self.ref = SessionRef.take(self.opened)
        self.calls = Calls()
        rings = _rings.open_rings("ring", self.ref, is_local=True)
        self.client = pagoda.Client(Channel(), self.calls, self.opened, timeout, rings)

    def _answer(self, pair, request):
        self.seen.append(request.batch)
        self.answer(pair, request)

    @property
    def pair(self):
        return self.map_socket.pairs[-1]

    def sequence(self):
        """A sequence with one batch to the daemon."""
        return self.client.sequence([1, 2, 3])


@pytest.fixture
def start(tmp_path, monkeypatch):
    monkeypatch.setattr(_rings, "_PAUSE", 0.0)
    # However busy the machine, a new pair comes.
    monkeypatch.setattr(_rings, "_MAY_SECONDS", SECONDS)
    with contextlib.ExitStack() as stack:
        def make(*args, **options):
            setting = Setting(tmp_path, *args, **options)
            stack.callback(setting.map_socket.close)
            stack.enter_context(setting.client)
            return setting

        yield make
