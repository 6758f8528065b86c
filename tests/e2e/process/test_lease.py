"""A client that dies gives everything back: closed sessions at once, the rest when its lease
ends."""

import signal
import subprocess
import sys
import threading
import time

import dying_client
import grpc
import pytest
from pagoda_client import Client, OperationError
from pagoda_daemon import CALL_SECONDS
from pagoda.v1 import cache_pb2

CAPACITY = 64
LEASE_MS = 700


@pytest.fixture
def victim(daemon):
    """A client process in the middle of its batches."""
    process = subprocess.Popen([sys.executable, dying_client.__file__, f"unix:{daemon.unix_socket}", str(LEASE_MS)],
                               stdout=subprocess.PIPE, text=True)
    for number in range(20):
        assert process.stdout.readline() == f"{number}\n"
    yield process
    process.kill()
    process.wait()


def test_a_killed_clients_blocks_come_back_after_its_lease(daemon, victim):
    assert daemon.primary().active_blocks >= 5
    victim.kill()
    killed = time.monotonic()
    daemon.wait_until(lambda daemon: daemon.status().sessions == 0)
    assert time.monotonic() - killed >= LEASE_MS / 1000
    tier = daemon.primary()
    assert tier.active_blocks == 0 and tier.in_flight_blocks == 0
    assert tier.cached_blocks > 0, "committed blocks stay cached"
    assert tier.free_blocks + tier.cached_blocks == CAPACITY
    with Client(daemon.channel) as client:
        assert len(client.allocate(CAPACITY)) == CAPACITY


def test_a_silent_session_without_a_stream_ends_with_its_lease(daemon):
    silent = Client(daemon.channel, lease_ms=LEASE_MS)
    silent.allocate(9)
    assert silent.opened.lease_ms == LEASE_MS
    daemon.wait_until(lambda daemon: daemon.primary().free_blocks == CAPACITY)
    with pytest.raises(OperationError) as failure:
        silent.allocate(1)
    assert failure.value.reason == "STALE_SESSION"


def test_signs_of_life_renew_the_lease(daemon):
    """A busy machine can keep the client waiting for longer than the lease. Then it begins anew."""
    for _ in range(10):
        client = Client(daemon.channel, lease_ms=LEASE_MS)
        client.allocate(1)
        longest = 0.0
        for beat in range(10):
            before = time.monotonic()
            time.sleep(LEASE_MS / 1000 / 4)
            try:
                if beat % 2:
                    client.stub.KeepAlive(cache_pb2.KeepAliveRequest(session=client.session), timeout=CALL_SECONDS)
                else:
                    client.match([1, 2])
            except (OperationError, grpc.RpcError):
                assert time.monotonic() - before >= LEASE_MS / 1000 / 2, "a client in time lost its session"
                break
            longest = max(longest, time.monotonic() - before)
        else:
            active = daemon.primary().active_blocks
            if max(longest, time.monotonic() - before) < LEASE_MS / 1000:
                assert active == 1
                client.close()
                return
        daemon.wait_until(lambda daemon: daemon.status().sessions == 0)
    raise AssertionError(f"a beat took {longest:.3f} s each time")


PAUSE_SECONDS = 3 * LEASE_MS / 1000


@pytest.mark.parametrize("renews", ["KeepAlive", "Execute"])
def test_a_pause_of_the_daemon_ends_no_session_that_renews_in_time(daemon, renews):
    """After the pause the client waits as if it had been paused too, like in a migration of a
    virtual machine. The client that never renews shows that leases end afterwards."""
    client, dead = (Client(daemon.channel, lease_ms=LEASE_MS) for _ in range(2))
    client.allocate(1)
    dead.allocate(2)
    daemon.process.send_signal(signal.SIGSTOP)
    time.sleep(PAUSE_SECONDS)
    daemon.process.send_signal(signal.SIGCONT)
    for _ in range(20):
        time.sleep(LEASE_MS / 1000 / 2)
        if renews == "KeepAlive":
            client.stub.KeepAlive(cache_pb2.KeepAliveRequest(session=client.session), timeout=CALL_SECONDS)
        else:
            client.match([1, 2])
        if daemon.primary().active_blocks == 1:
            break
    assert daemon.primary().active_blocks == 1, "the dead client's session is over, the other is not"
    client.close()


def test_a_broken_stream_starts_the_lease_and_a_new_one_stops_it(daemon):
    client = Client(daemon.channel, lease_ms=LEASE_MS)
    client.allocate(3)
    for _ in range(3):
        requests = iter([cache_pb2.SessionRequest(session=client.session)])
        assert len(list(client.stub.Session(requests, timeout=CALL_SECONDS))) == 1
        time.sleep(LEASE_MS / 1000 / 2)
    assert daemon.primary().active_blocks == 3
    daemon.wait_until(lambda daemon: daemon.primary().free_blocks == CAPACITY)


def test_responses_of_a_stream_come_in_the_order_of_its_batches(daemon):
    client = Client(daemon.channel)
    first = cache_pb2.SessionRequest(session=client.session)
    rest = [cache_pb2.SessionRequest(batch_id=number, batch=cache_pb2.Batch(operations=[cache_pb2.Operation(
        allocate_blocks=cache_pb2.AllocateBlocksRequest(count=number % 3))])) for number in range(1, 31)]
    responses = list(client.stub.Session(iter([first] + rest), timeout=CALL_SECONDS))
    assert [response.batch_id for response in responses] == list(range(31))
    assert [response.result.results[0].HasField("error") for response in responses[1:]] == [
        number % 3 == 0 for number in range(1, 31)]
    assert daemon.primary().active_blocks == 30
    client.close()


def test_the_lease_does_not_run_while_a_stream_is_open(daemon):
    """Two streams, so that the end of one is not the end of the session's."""
    client = Client(daemon.channel, lease_ms=LEASE_MS)
    client.allocate(2)
    done = threading.Event()
    silent_stream = client.stub.Session(one_request_then_silence(client.session, done))
    next(silent_stream)
    list(client.stub.Session(iter([cache_pb2.SessionRequest(session=client.session)]), timeout=CALL_SECONDS))
    time.sleep(3 * LEASE_MS / 1000)
    assert daemon.primary().active_blocks == 2
    done.set()
    assert list(silent_stream) == []
    daemon.wait_until(lambda daemon: daemon.primary().free_blocks == CAPACITY)


def one_request_then_silence(session, done):
    yield cache_pb2.SessionRequest(session=session)
    done.wait()
