"""The calls that move prefixes between machines, without a daemon: what they ask, what they make of
the answers, and how long they wait."""

import asyncio
import concurrent.futures

import grpc
import pagoda
import pagoda.aio
import pytest
from google.protobuf import any_pb2
from pagoda import _contract

TIMEOUT = 10
FETCHED = _contract.v1.FetchPrefixResponse(outcome=3, matched_tokens=12, fetched_tokens=8)
EXPORTED = _contract.v1.ExportPrefixResponse(exported_tokens=8, stored_tokens=4, pin_id=7, source={"address": "node-a:7075"})


class Refused(grpc.RpcError):
    """The exception that gRPC raises for an error of the daemon."""

    def __init__(self, reason):
        super().__init__()
        self._reason = reason

    def code(self):
        return grpc.StatusCode.PERMISSION_DENIED

    def details(self):
        return "no"

    def trailing_metadata(self):
        detail = any_pb2.Any()
        detail.Pack(_contract.rpc.ErrorInfo(domain="pagoda", reason=self._reason))
        status = _contract.rpc.Status(code=7, message="no")
        status.details.add().MergeFromString(detail.SerializeToString())
        return [("grpc-status-details-bin", status.SerializeToString())]


class FakeCalls:
    """Keeps the requests and their time-outs, and gives one answer, or raises it."""

    def __init__(self, answer):
        self.asked, self.answer = [], answer
        self.keep_alive = self.close_session = lambda request, **options: None

    def fetch_prefix(self, request, timeout):
        self.asked.append((request, timeout))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    export_prefix = fetch_prefix

    def begin_fetch_prefix(self, request, timeout):
        self.asked.append((request, timeout))
        return self.answer

    @staticmethod
    def opened():
        return _contract.v1.OpenSessionResponse(lease_ms=1000_000, session={"session_id": 5})


class FakeAioCalls(FakeCalls):
    async def _nothing(self, request, **options):
        return None

    def __init__(self, answer):
        super().__init__(answer)
        self.keep_alive = self.close_session = self._nothing

    async def fetch_prefix(self, request, timeout):  # pylint: disable=invalid-overridden-method
        return FakeCalls.fetch_prefix(self, request, timeout)

    export_prefix = fetch_prefix


class FakeChannel:
    def close(self, *grace):
        """There is nothing."""


class FakeAioChannel:
    async def close(self, *grace):
        """There is nothing."""


def ask(answer, work):
    """What `work(client)` gives, and the request with its time-out. Both kinds of clients must give
    the same."""
    calls = FakeCalls(answer)
    with pagoda.Client(FakeChannel(), calls, calls.opened(), TIMEOUT) as client:
        done = work(client)

    async def run():
        aio_calls = FakeAioCalls(answer)
        async with pagoda.aio.Client(FakeAioChannel(), aio_calls, aio_calls.opened(), TIMEOUT) as client:
            return await work(client), aio_calls.asked

    assert asyncio.run(run()) == (done, calls.asked)
    ((request, timeout),) = calls.asked
    return done, request, timeout


def test_a_fetch_names_the_prefix_the_source_and_the_deadline():
    space = pagoda.Namespace(lora_id=3)
    done, request, timeout = ask(FETCHED, lambda client: client.fetch_prefix(range(13), source="node-a:7075", deadline=0.5, namespace=space))
    assert done == pagoda.FetchedPrefix(pagoda.FetchOutcome.MISSING, 12, 8)
    assert request == _contract.v1.FetchPrefixRequest(session={"session_id": 5}, tokens=range(13), namespace={"lora_id": 3},
                                                      deadline_ms=500, source={"address": "node-a:7075"})
    assert timeout == TIMEOUT + 0.5, "the answer of a fetch that ends at its deadline still comes"


def test_a_fetch_without_a_deadline_has_the_clients_time():
    _, request, timeout = ask(FETCHED, lambda client: client.fetch_prefix(keys=[b"one", b"two"]))
    assert request == _contract.v1.FetchPrefixRequest(session={"session_id": 5}, keys=[b"one", b"two"], namespace={"keyed": True},
                                                      deadline_ms=TIMEOUT * 1000)
    assert timeout == 2 * TIMEOUT and not request.HasField("source")


def test_a_deadline_that_is_none_is_refused_before_the_call():
    calls = FakeCalls(FETCHED)
    with pagoda.Client(FakeChannel(), calls, calls.opened(), TIMEOUT) as client:
        for method in (client.fetch_prefix, client.fetch_prefix_async):
            with pytest.raises(ValueError, match="at least 0.001 seconds"):
                method(range(8), deadline=0)
    assert not calls.asked


def test_an_export_says_where_the_prefix_is_fetched():
    done, request, timeout = ask(EXPORTED, lambda client: client.export_prefix(range(9), lease=30, to_store=True, timeout=60))
    assert done == pagoda.ExportedPrefix("node-a:7075", exported_tokens=8, stored_tokens=4, pin_id=7)
    assert request == _contract.v1.ExportPrefixRequest(session={"session_id": 5}, tokens=range(9), lease_ms=30_000, to_store=True)
    assert timeout == 60
    _, request, timeout = ask(EXPORTED, lambda client: client.export_prefix(range(9)))
    assert not request.HasField("lease_ms") and not request.to_store and timeout == TIMEOUT


def test_every_outcome_has_a_name():
    assert {one.name.lower(): one.value for one in pagoda.FetchOutcome} == _contract.enum_values("pagoda.v1.FetchOutcome", "FETCH_OUTCOME_")


def test_what_the_daemon_refuses_is_raised_with_its_reason():
    calls = FakeCalls(Refused("PERMISSION_DENIED"))
    with pagoda.Client(FakeChannel(), calls, calls.opened(), TIMEOUT) as client:
        with pytest.raises(pagoda.PermissionDenied) as refused:
            client.fetch_prefix(range(8), source="elsewhere:1")
        assert refused.value.reason == "PERMISSION_DENIED"


class FakeFuture(concurrent.futures.Future):
    """A future of gRPC has these errors instead."""

    def result(self, timeout=None):
        try:
            return super().result(timeout)
        except concurrent.futures.TimeoutError:
            raise grpc.FutureTimeoutError from None
        except concurrent.futures.CancelledError:
            raise grpc.FutureCancelledError from None


def begin(future, **options):
    calls = FakeCalls(future)
    with pagoda.Client(FakeChannel(), calls, calls.opened(), TIMEOUT) as client:
        return client.fetch_prefix_async(range(8), **options), calls.asked


def test_a_fetch_can_be_polled():
    future = FakeFuture()
    coming, ((request, timeout),) = begin(future, deadline=2)
    assert request.deadline_ms == 2000 and timeout == TIMEOUT + 2
    assert not coming.done()
    with pytest.raises(pagoda.TimedOut, match="not ended yet"):
        coming.result(0)
    future.set_result(FETCHED)
    assert coming.done() and coming.result().fetched_tokens == 8


def test_a_polled_fetch_raises_what_ended_it():
    future = FakeFuture()
    coming, _ = begin(future)
    future.set_exception(Refused("PERMISSION_DENIED"))
    with pytest.raises(pagoda.PermissionDenied):
        coming.result()
    future = FakeFuture()
    coming, _ = begin(future)
    coming.cancel()
    assert coming.done()
    with pytest.raises(pagoda.Unavailable, match="cancelled"):
        coming.result()


def test_a_fetch_of_asyncio_is_a_task():
    async def run():
        calls = FakeAioCalls(FETCHED)
        async with pagoda.aio.Client(FakeAioChannel(), calls, calls.opened(), TIMEOUT) as client:
            task = client.fetch_prefix_async(range(8), deadline=1)
            assert isinstance(task, asyncio.Task) and not task.done()
            return await task

    assert asyncio.run(run()) == pagoda.FetchedPrefix(pagoda.FetchOutcome.MISSING, 12, 8)
