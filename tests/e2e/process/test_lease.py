"""A client that dies gives everything back: closed sessions at once, the rest when its lease
ends."""

import signal
import subprocess
import sys
import time

import dying_client
import pytest
from pagoda_client import Client
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
