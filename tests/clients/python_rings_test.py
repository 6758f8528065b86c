"""Batches of the Python package through rings, against a daemon's side in plain Python
(fake_rings.py), which also does what no daemon does."""

import asyncio
import contextlib
import os
import signal
import threading
import time

import pagoda
import pagoda.aio
import pytest
from fake_rings import ANSWER, ANSWER_TOO_LARGE, MapSocket, Pair
from pagoda import _extension, _rings
from pagoda._contract import v1
from pagoda._map_socket import SessionRef

if _extension.native is None:
    pytest.skip("the build has no native extension, or PAGODA_NATIVE=0 turns it off", allow_module_level=True)

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
    with contextlib.ExitStack() as stack:
        def make(*args, **options):
            setting = Setting(tmp_path, *args, **options)
            stack.callback(setting.map_socket.close)
            stack.enter_context(setting.client)
            return setting

        yield make


def test_batches_go_through_the_rings_and_their_answers_come_back(start):
    setting = start()
    (asked,) = setting.map_socket.asked
    assert asked == v1.MapPoolsRequest(session=setting.opened.session, rings={"bytes": _rings._RING_BYTES})
    for _ in range(50):  # More than the ring holds at once.
        sequence = setting.sequence()
        assert sequence.describe().token_count == sequence.id
    assert setting.client.revision == 100
    assert not setting.calls.batches and len(setting.seen) == 100
    assert setting.seen[0].operations[0].add_sequence.tokens == [1, 2, 3]


def test_an_answer_that_comes_late_is_waited_for(start):
    def late(pair, request):
        time.sleep(0.2)  # Longer than a spin, and than the time between two looks at signals.
        serve(pair, request)

    setting = start(late)
    assert setting.sequence().describe().token_count == 1
    assert not setting.calls.batches


def test_what_waits_or_cannot_be_sent_again_goes_over_grpc(start):
    setting = start()
    with setting.client.batch() as batch:
        batch.wait_for_ticket(1)
    setting.client.allocate_blocks(100_000)
    assert not setting.seen
    assert [one.operations[0].WhichOneof("operation") for one in setting.calls.batches] == ["wait_for_ticket", "allocate_blocks"]
    setting.client.advance()
    assert len(setting.seen) == 1


def test_a_request_that_is_longer_than_the_ring_goes_over_grpc(start):
    setting = start()
    setting.client.match(range(SIZE))
    assert not setting.seen and len(setting.calls.batches) == 1
    setting.client.match([1])
    assert len(setting.seen) == 1 and len(setting.map_socket.pairs) == 1


def too_large(pair, request):
    pair.write(ANSWER_TOO_LARGE)


def ended(pair, request):
    pair.end()


def ended_with_reason(pair, request):
    pair.end(b"\x08\x09\x12\x02no")


def ended_with_a_bad_reason(pair, request):
    pair.halves[320 // 4] = 1 << 31
    pair.vanish()


def vanished(pair, request):
    pair.vanish()


def too_far(pair, request):
    pair.publish(SIZE + 8)


def backwards(pair, request):
    pair.publish((1 << 64) - 8)


def not_aligned(pair, request):
    pair.publish(12)


def too_long(pair, request):
    pair.write(ANSWER, b"12345678", size=SIZE * 2)


def longest(pair, request):
    pair.write(ANSWER, b"12345678", size=(1 << 32) - 1)


def of_another_kind(pair, request):
    pair.write(77, b"12345678")


def reads_too_far(pair, request):
    pair.words[128 // 8] = 1 << 40
    pair.vanish()


BREAKS = [ended, ended_with_reason, ended_with_a_bad_reason, vanished, too_far, backwards, not_aligned, too_long, longest, of_another_kind,
          reads_too_far]


@pytest.mark.parametrize("broken", [too_large, *BREAKS])
def test_a_lost_answer_is_fetched_over_grpc_under_the_same_retry_id(start, broken):
    setting = start()
    setting.sequence()
    setting.answer = broken
    assert setting.sequence().token_count == 3
    assert len(setting.seen) == 2 and setting.calls.batches == [setting.seen[1]] and setting.seen[1].retry_id == 2
    # The next batch has rings again: the same ones, or new ones.
    setting.answer = serve
    setting.sequence()
    assert len(setting.calls.batches) == 1 and len(setting.seen) == 3
    assert len(setting.map_socket.pairs) == (1 if broken is too_large else 2)


@pytest.mark.parametrize("end", [Pair.end, Pair.vanish])
def test_a_pair_that_ended_between_two_batches_is_replaced(start, end):
    setting = start()
    setting.sequence()
    end(setting.pair)
    for _ in range(3):
        setting.sequence()
    assert len(setting.map_socket.pairs) == 2 and len(setting.seen) + len(setting.calls.batches) == 4
    assert len(setting.calls.batches) <= 1


def test_without_new_rings_everything_goes_over_grpc(start):
    setting = start()
    setting.sequence()
    setting.map_socket.close()
    setting.pair.end()
    for _ in range(3):
        setting.sequence()
    assert len(setting.calls.batches) == 3


def test_new_rings_are_not_asked_for_with_each_batch(start, monkeypatch):
    monkeypatch.setattr(_rings, "_PAUSE", 1e6)
    setting = start()
    for _ in range(4):
        setting.pair.end()
        setting.sequence()
        setting.sequence()
    assert len(setting.map_socket.pairs) == 2


def test_no_answer_in_time_is_an_error_and_a_late_answer_is_nobodys(start):
    late = threading.Event()

    def slow(pair, request):
        late.wait(SECONDS)
        pair.reply(v1.BatchResult(revision=1 << 40))

    setting = start(slow)
    setting.client.timeout = 0.2
    with pytest.raises(pagoda.TimedOut, match="no answer in 0.2 s") as failure:
        setting.client.advance()
    assert failure.value.reason == "" and not setting.calls.batches
    setting.answer = serve
    late.set()
    setting.client.timeout = SECONDS
    setting.client.advance()
    assert setting.client.revision == 2


def test_threads_take_turns_and_get_their_own_answers(start):
    setting = start()
    wrong = []

    def work():
        for _ in range(100):
            sequence = setting.sequence()
            if sequence.describe().token_count != sequence.id:
                wrong.append(sequence.id)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and len(setting.seen) == 1600 and not setting.calls.batches


def test_a_thread_whose_turn_does_not_come_in_time_sends_nothing(start):
    go_on = threading.Event()

    def slow(pair, request):
        go_on.wait(SECONDS)
        serve(pair, request)

    setting = start(slow)
    first = threading.Thread(target=setting.client.advance)
    first.start()
    while not setting.seen:
        time.sleep(0.01)
    ring = setting.client._rings._ring
    assert ring.call(b"", 0.05) == _extension.native.NOT_SENT
    go_on.set()
    first.join()
    assert len(setting.seen) == 1


def test_closing_does_not_disturb_the_call_of_another_thread(start):
    go_on, results = threading.Event(), []

    def slow(pair, request):
        go_on.wait(SECONDS)
        serve(pair, request)

    setting = start(slow)
    thread = threading.Thread(target=lambda: results.append(setting.sequence().token_count))
    thread.start()
    while not setting.seen:
        time.sleep(0.01)
    setting.client._rings.close()
    go_on.set()
    thread.join()
    assert results == [3]
    setting.client.advance()
    assert len(setting.calls.batches) == 1 and len(setting.map_socket.pairs) == 1
    setting.client._rings.close()


def test_a_signals_exception_ends_the_wait(start):
    setting = start(lambda pair, request: os.kill(os.getpid(), signal.SIGUSR1))

    def interrupt(number, frame):
        raise InterruptedError("by a signal")

    before, ring = signal.signal(signal.SIGUSR1, interrupt), setting.client._rings._ring
    try:
        with pytest.raises(InterruptedError, match="by a signal"):
            setting.client.advance()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert ring.error == "a signal has interrupted a call"
    setting.answer = serve
    setting.client.advance()
    assert not setting.calls.batches and len(setting.map_socket.pairs) == 2


def test_a_forked_child_leaves_the_rings_alone(start):
    setting = start()
    setting.sequence()
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        status = 1
        try:
            setting.sequence()
            setting.sequence()
            os.write(write, bytes([len(setting.calls.batches), len(setting.client._rings._ring.error)]))
            del setting.client._rings._ring
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert os.read(read, 9) == b"\x02\x00"
    os.close(read)
    os.close(write)
    setting.sequence()
    assert len(setting.seen) == 2 and len(setting.map_socket.pairs) == 1 and not setting.calls.batches


def test_asyncio_waits_in_a_thread(start):
    setting = start()
    busy = threading.Event()

    def slow(pair, request):
        busy.wait(SECONDS)
        serve(pair, request)

    setting.answer = slow
    calls = AioCalls()

    async def run():
        async with pagoda.aio.Client(AioChannel(), calls, setting.opened, SECONDS, setting.client._rings) as client:
            waiting = asyncio.create_task(client.advance())
            while not setting.seen:
                await asyncio.sleep(0.01)  # The loop goes on.
            busy.set()
            await waiting
            setting.answer = serve
            sequences = await asyncio.gather(*(client.sequence([1]) for _ in range(20)))
            described = await asyncio.gather(*(sequence.describe() for sequence in sequences))
            assert [told.token_count for told in described] == [sequence.id for sequence in sequences]
            setting.answer = ended
            await client.advance()
            return client.revision

    assert asyncio.run(run()) == 42
    assert len(setting.seen) == 42 and len(calls.batches) == 1


@pytest.mark.parametrize("arguments, error", [((), TypeError), ((b"",), TypeError), (("", 1.0), TypeError), ((b"", "1"), TypeError),
                                              ((bytearray(), 1.0), TypeError), ((b"", float("nan")), ValueError), ((None, 1.0), TypeError)])
def test_wrong_arguments_of_a_call_are_refused(start, arguments, error):
    setting = start(lambda pair, request: None)
    ring = setting.client._rings._ring
    with pytest.raises(error):
        ring.call(*arguments)
    assert not setting.seen and ring.is_open
    assert ring.call(b"", -1.0) == _extension.native.TIMEOUT  # Sent, but not waited for.
    assert not ring.is_open and ring.error == "an answer did not come in time" and ring.reason == b""
    assert ring.call(b"", float("inf")) == _extension.native.NOT_SENT
    setting.answer = serve


def test_the_reason_of_the_daemon_can_be_read(start):
    setting = start(ended_with_reason)
    setting.client.advance()
    assert setting.client._rings._ring.reason == b"\x08\x09\x12\x02no"


def test_a_pair_that_is_none_is_refused(tmp_path):
    pairs = [Pair(SIZE, serve, seals=0)]

    def make():
        if not pairs:
            raise ValueError("this daemon has no rings")
        return pairs.pop()

    map_socket = MapSocket(tmp_path / "map.sock", make)
    session = SessionRef(1, (2, 3), map_socket.path)
    with pytest.raises(pagoda.CannotMap, match="not sealed"):
        _rings.open_rings("ring", session, is_local=True)
    with pytest.raises(pagoda.NotServed, match="this daemon has no rings"):
        _rings.open_rings("ring", session, is_local=True)
    assert _rings.open_rings("auto", session, is_local=True) is None and len(map_socket.asked) == 3
    assert _rings.open_rings("auto", session, is_local=False) is None
    assert _rings.open_rings("grpc", session, is_local=True) is None and len(map_socket.asked) == 3
    map_socket.close()
    assert _rings.open_rings("auto", SessionRef(1, (2, 3), ""), is_local=True) is None
    with pytest.raises(pagoda.CannotMap):
        _rings.open_rings("ring", SessionRef(1, (2, 3), ""), is_local=True)


def test_the_transport_is_an_argument_or_in_the_environment(monkeypatch):
    monkeypatch.delenv("PAGODA_TRANSPORT", raising=False)
    assert [_rings.choose(given) for given in (None, "grpc", "ring", "auto")] == ["auto", "grpc", "ring", "auto"]
    monkeypatch.setenv("PAGODA_TRANSPORT", "grpc")
    assert (_rings.choose(None), _rings.choose("ring")) == ("grpc", "ring")
    with pytest.raises(ValueError, match="unknown transport 'tcp'; the transports are auto, grpc, ring"):
        pagoda.connect("unix:/nowhere", transport="tcp")


def test_without_the_extension_the_transport_ring_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(_rings, "native", None)
    session = SessionRef(1, (2, 3), str(tmp_path / "map.sock"))
    assert _rings.open_rings("auto", session, is_local=True) is None
    with pytest.raises(pagoda.CannotMap, match="no native extension"):
        _rings.open_rings("ring", session, is_local=True)
