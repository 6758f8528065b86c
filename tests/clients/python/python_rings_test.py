"""Batches of the Python package through rings, against a daemon's side in plain Python
(fake_rings.py), which also does what no daemon does."""

import contextlib
import ctypes
import os
import resource
import signal
import threading
import time

import pagoda
import pytest
from fake_rings import ANSWER, ANSWER_TOO_LARGE, REFUSAL, Pair
from pagoda import _extension, _rings
from pagoda._contract import v1
from ring_setting import SECONDS, SIZE, refuse, serve, start  # pylint: disable=unused-import

if _extension.native is None:
    pytest.skip("the build has no native extension, or PAGODA_NATIVE=0 turns it off", allow_module_level=True)


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


def test_a_batch_that_is_refused_as_a_whole_raises_and_the_pair_goes_on(start):
    setting = start(refuse)
    for _ in range(3):
        with pytest.raises(pagoda.BadRequest, match="not this one") as failure:
            setting.client.advance()
        assert failure.value.code.name == "INVALID_ARGUMENT"
    setting.answer = serve
    setting.client.advance()
    assert len(setting.seen) == 4 and not setting.calls.batches and len(setting.map_socket.pairs) == 1


def test_a_refusal_without_a_reason_that_another_way_may_not_meet_is_asked_for_over_grpc(start):
    setting = start(lambda pair, request: pair.refuse(14, "broken"))
    setting.client.advance()
    assert len(setting.seen) == 1 and setting.calls.batches == setting.seen


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


def not_an_answer(pair, request):
    pair.write(ANSWER, b"\xff")


def not_a_refusal(pair, request):
    pair.write(REFUSAL, b"\xff")


BREAKS = [ended, ended_with_reason, ended_with_a_bad_reason, vanished, too_far, backwards, not_aligned, too_long, longest, of_another_kind,
          reads_too_far, not_an_answer, not_a_refusal]


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


@contextlib.contextmanager
def little_memory():
    """No block of a mebibyte can be allocated."""
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]
    before, taken = resource.getrlimit(resource.RLIMIT_AS), []
    with open("/proc/self/statm", encoding="ascii") as file:
        size = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size, before[1]))
    try:
        while (block := libc.malloc(1 << 20)) is not None:
            taken.append(block)
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
        for block in taken:
            libc.free(block)


def test_a_call_without_memory_for_its_answer_gives_its_turn_back(start):
    length = (4 << 20) - 8

    def large(pair, request):
        pair.prepare(ANSWER, size=length)
        pair.publish(8 + length)

    setting = start(large, size=4 << 20)
    ring = setting.client._rings._ring
    with pytest.raises(MemoryError), little_memory():
        ring.call(b"", SECONDS)
    assert ring.error == "out of memory" and not ring.is_open, "its answer may still come"
    assert ring.call(b"", 0.0) == _extension.native.NOT_SENT
    setting.answer = serve
    setting.client.advance()
    assert not setting.calls.batches and len(setting.map_socket.pairs) == 2


def test_no_answer_in_time_is_an_error_and_a_late_answer_is_nobodys(start):
    late = threading.Event()

    def slow(pair, request):
        late.wait(SECONDS)
        pair.reply(v1.BatchResult(revision=1 << 40))

    setting = start(slow)
    ring = setting.client._rings._ring
    setting.client.timeout = 2.0
    with pytest.raises(pagoda.TimedOut, match="no answer in 2 s") as failure:
        setting.client.advance()
    assert failure.value.reason == "" and not setting.calls.batches
    assert not ring.is_open and ring.error == "an answer did not come in time" and ring.reason == b""
    assert ring.call(b"", float("inf")) == _extension.native.NOT_SENT
    setting.answer = serve
    late.set()
    setting.client.timeout = SECONDS
    setting.client.advance()
    assert setting.client.revision == 2


def test_a_call_whose_time_is_over_sends_nothing_and_the_pair_goes_on(start):
    setting = start()
    ring = setting.client._rings._ring
    for seconds in (0.0, -1.0, float("-inf")):
        assert ring.call(b"", seconds) == _extension.native.NOT_SENT
    setting.client.advance()
    assert len(setting.seen) == 1 and not setting.calls.batches and len(setting.map_socket.pairs) == 1


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


def test_a_batch_of_a_signal_handler_does_not_wait_for_the_call_that_it_interrupts(start):
    handled = threading.Event()

    def interrupted(pair, request):
        os.kill(os.getpid(), signal.SIGUSR1)
        handled.wait(SECONDS)
        serve(pair, request)

    setting = start(interrupted)

    def handle(number, frame):
        setting.client.advance()
        handled.set()

    before = signal.signal(signal.SIGUSR1, handle)
    try:
        setting.client.advance()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert handled.is_set() and len(setting.seen) == 1 and len(setting.calls.batches) == 1
    setting.answer = serve
    setting.client.advance()
    assert len(setting.seen) == 2 and len(setting.map_socket.pairs) == 1, "the turn is free again"


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


@pytest.mark.parametrize("arguments, error", [((), TypeError), ((b"",), TypeError), (("", 1.0), TypeError), ((b"", "1"), TypeError),
                                              ((bytearray(), 1.0), TypeError), ((b"", float("nan")), ValueError), ((None, 1.0), TypeError)])
def test_wrong_arguments_of_a_call_are_refused(start, arguments, error):
    setting = start(lambda pair, request: None)
    ring = setting.client._rings._ring
    with pytest.raises(error):
        ring.call(*arguments)
    assert not setting.seen and ring.is_open


def test_the_reason_of_the_daemon_can_be_read(start):
    setting = start(ended_with_reason)
    setting.client.advance()
    assert setting.client._rings._ring.reason == b"\x08\x09\x12\x02no"
