"""Batches of pagoda.aio through rings: the event loop goes on, and timeouts hold."""

import asyncio
import contextlib
import threading
import time

import grpc
import pagoda
import pagoda.aio
import pagoda.aio.client
import pytest
from pagoda import _extension
from ring_setting import SECONDS, AioCalls, AioChannel, Setting, serve, start  # pylint: disable=unused-import

if _extension.native is None:
    pytest.skip("the build has no native extension, or PAGODA_NATIVE=0 turns it off", allow_module_level=True)


def test_asyncio_waits_in_a_thread(start, monkeypatch):
    # However long a batch waits for its turn, it goes through the rings.
    monkeypatch.setattr(pagoda.aio.client, "_TURN", SECONDS)
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
            setting.answer = lambda pair, request: pair.end()
            await client.advance()
            return client.revision

    assert asyncio.run(run()) == 42
    assert len(setting.seen) == 42 and len(calls.batches) == 1


def with_aio_clients(settings, run):
    """Runs `run(clients, calls)` with a client of pagoda.aio for each setting."""
    calls = [AioCalls() for _ in settings]

    async def opened():
        async with contextlib.AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(pagoda.aio.Client(AioChannel(), one, setting.opened, SECONDS, setting.client._rings))
                       for one, setting in zip(calls, settings)]
            return await run(clients, calls)

    return asyncio.run(opened())


async def until(condition):
    end = time.monotonic() + SECONDS
    while not condition() and time.monotonic() < end:
        await asyncio.sleep(0.01)
    assert condition()


def test_a_slow_batch_of_asyncio_holds_up_neither_its_session_nor_another(tmp_path, monkeypatch):
    go_on = threading.Event()

    def slow(pair, request):
        go_on.wait(SECONDS)
        serve(pair, request)

    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    one, two = Setting(tmp_path / "one", slow), Setting(tmp_path / "two")

    async def run(clients, calls):
        waiting = asyncio.create_task(clients[0].advance())
        await until(lambda: one.seen)
        await clients[1].advance()
        await asyncio.gather(*(clients[0].advance() for _ in range(5)))
        assert len(calls[0].batches) == 5 and not calls[1].batches and not waiting.done()
        go_on.set()
        await waiting
        one.answer = serve
        await clients[0].advance()
        assert len(calls[0].batches) == 5

    try:
        with_aio_clients([one, two], run)
    finally:
        go_on.set()
        one.map_socket.close()
        two.map_socket.close()
    assert len(one.seen) == len(two.seen) + 1 == 2


def test_asyncio_keeps_the_timeout_while_another_batch_is_slow(start):
    go_on = threading.Event()

    def slow(pair, request):
        go_on.wait(SECONDS)
        serve(pair, request)

    setting = start(slow)

    async def run(clients, calls):
        client, = clients
        waiting = asyncio.create_task(client.advance())
        await until(lambda: setting.seen)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(pagoda.aio.client, "_TURN", 2.0 * SECONDS)

            async def too_late(request, timeout):
                assert timeout <= 0
                raise pagoda.TimedOut(pagoda.errors.Details(grpc.StatusCode.DEADLINE_EXCEEDED, "over gRPC"))

            patch.setattr(calls[0], "execute", too_late)
            patch.setattr(client, "_unary", lambda call, request, timeout: call(request, timeout))
            client.timeout = 0.1
            with pytest.raises(pagoda.TimedOut, match="over gRPC"):
                await client.advance()
        assert not waiting.done(), "the first batch has its own timeout"
        go_on.set()
        await waiting

    with_aio_clients([setting], run)
    assert len(setting.seen) == 1


def test_a_caller_of_asyncio_that_gives_up_leaves_the_rings_in_order(start):
    go_on = threading.Event()

    def slow(pair, request):
        go_on.wait(SECONDS)
        serve(pair, request)

    setting = start(slow)

    async def run(clients, calls):
        client, = clients
        waiting = asyncio.create_task(client.advance())
        await until(lambda: setting.seen)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await client.advance()  # The thread still waits for the answer that nobody wants.
        assert len(calls[0].batches) == 1
        go_on.set()
        setting.answer = serve
        await until(lambda: not client._waiter_free.locked())
        sequence = await client.sequence([1])
        assert (await sequence.describe()).token_count == sequence.id
        assert len(calls[0].batches) == 1

    with_aio_clients([setting], run)
