"""The Python package's sessions: how they are found, kept alive and ended, and their errors."""

import asyncio
import gc
import re
import signal
import subprocess
import sys
import threading
import weakref

import pagoda
import pagoda.aio
import pytest
from pagodactl import PAGODACTL

pytestmark = pytest.mark.usefixtures("transport")

LEASE = 1.0
LONGEST_ATTEMPT = 2.0  # grpc.min_reconnect_backoff_ms
# A client that makes a call for each line of its input, and prints the result.
OBEDIENT = """
import sys, pagoda
client = pagoda.connect(sys.argv[1], name="obedient", lease=float(sys.argv[2]))
client.allocate_blocks(3)
print("open", flush=True)
for line in sys.stdin:
    try:
        client.match([1, 2])
        print("fine", flush=True)
    except pagoda.SessionGone as error:
        print(error.reason, flush=True)
"""


def keep_alives(daemon):
    """How many signs of life have been answered."""
    return sum(int(count) for count in re.findall(r'^pagoda_grpc_requests_total\{.*KeepAlive.*\} (\d+)$', daemon.http("/metrics")[1], re.M))


def test_a_session_is_opened_over_tcp_and_over_a_unix_socket(daemon):
    for endpoint in (daemon.grpc_address, f"unix:{daemon.unix_socket}"):
        with pagoda.connect(endpoint, name="finder") as client:
            assert daemon.status().sessions == 1
            assert (client.epoch, client.lease) == (daemon.status().epoch, 30.0)
            assert client.cache.tokens_per_block == 4
            assert client.cache.windows == (pagoda.Window(window_size=0, blocks=(64,)),)
            assert [(tier.name, tier.medium) for tier in client.cache.tiers] == [("primary", pagoda.Medium.HOST)]
            assert client.cache.tier_name(pagoda.Tier.PRIMARY) == "primary"
        assert daemon.status().sessions == 0


def test_the_endpoint_comes_from_the_environment(daemon, monkeypatch):
    monkeypatch.setenv("PAGODA_ENDPOINT", f"unix:{daemon.unix_socket}")
    with pagoda.connect() as client:
        assert client.epoch == daemon.status().epoch
    with pytest.raises(pagoda.Unavailable), pagoda.connect("unix:/nowhere/pagodad.sock"):
        pass


async def _connect_and_leave(endpoint):
    async with pagoda.aio.connect(endpoint, timeout=60):
        pass


def _status(endpoint):
    subprocess.run([PAGODACTL, "--endpoint", endpoint, "--timeout", "60", "status"], stdout=subprocess.DEVNULL, check=True)


@pytest.mark.parametrize("connect", [lambda endpoint: pagoda.connect(endpoint, timeout=60).close(),
                                     lambda endpoint: asyncio.run(_connect_and_leave(endpoint)), _status],
                         ids=["python", "asyncio", "pagodactl"])
def test_a_daemon_that_stands_still_is_waited_for(daemon, connect):
    """For longer than gRPC's longest attempt to connect."""
    daemon.process.send_signal(signal.SIGSTOP)
    go_on = threading.Timer(1.5 * LONGEST_ATTEMPT, daemon.process.send_signal, [signal.SIGCONT])
    go_on.start()
    try:
        connect(f"unix:{daemon.unix_socket}")
    finally:
        go_on.join()


def test_where_nobody_answers_the_error_has_no_reason(tmp_path):
    with pytest.raises(pagoda.Unavailable) as failure:
        pagoda.connect(f"unix:{tmp_path}/nobody.sock", timeout=5)
    assert failure.value.reason == ""


def test_a_lease_is_kept_alive_past_its_length(start_daemon):
    daemon = start_daemon(server={"http_address": "127.0.0.1:0"})
    with pagoda.connect(daemon.grpc_address, lease=LEASE) as client, client.sequence(range(9)) as sequence:
        assert client.lease == LEASE
        daemon.wait_until(lambda daemon: keep_alives(daemon) >= 7)  # Three in each lease.
        assert sequence.describe().token_count == 9
        assert client.session_error is None


def test_a_session_whose_lease_ran_out_is_gone(daemon):
    command = [sys.executable, "-c", OBEDIENT, f"unix:{daemon.unix_socket}", str(LEASE)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        def ask():
            process.stdin.write("\n")
            process.stdin.flush()
            return process.stdout.readline().strip()

        assert process.stdout.readline() == "open\n"
        assert ask() == "fine"
        process.send_signal(signal.SIGSTOP)  # It sends no more keep-alives.
        daemon.wait_until(lambda daemon: daemon.status().sessions == 0)
        assert daemon.primary().active_blocks == 0
        process.send_signal(signal.SIGCONT)
        assert ask() == "STALE_SESSION"
        process.stdin.close()


def test_a_session_of_the_daemon_before_this_one_is_stale(start_daemon, tmp_path):
    daemon = start_daemon()
    client = pagoda.connect(f"unix:{daemon.unix_socket}", lease=LEASE)
    daemon.kill()
    daemon.start()
    with pagoda.connect(f"unix:{daemon.unix_socket}") as other:  # It has the session id of the first one.
        with pytest.raises(pagoda.SessionGone) as failure:
            client.allocate_blocks(1)
        assert failure.value.reason == "STALE_SESSION"
        assert other.epoch != client.epoch
        daemon.wait_until(lambda _: client.session_error is not None)
        assert client.session_error.reason == "STALE_SESSION"
        client.close()


def test_a_client_that_is_forgotten_ends_with_its_lease(daemon):
    client = pagoda.connect(f"unix:{daemon.unix_socket}", lease=LEASE)
    client.allocate_blocks(5)
    gone = weakref.ref(client)
    del client
    gc.collect()
    assert gone() is None
    daemon.wait_until(lambda daemon: daemon.status().sessions == 0)


def test_closing_frees_everything_and_does_so_once(daemon):
    client = pagoda.connect(f"unix:{daemon.unix_socket}")
    client.allocate_blocks(5)
    client.sequence(range(20))
    assert daemon.primary().active_blocks == 10
    client.close()
    assert daemon.primary().free_blocks == 64
    client.close()


def test_a_session_for_another_model_is_refused_by_name(start_daemon):
    daemon = start_daemon(cache={"model": {"name": "org/tiny", "revision": "r1"}})
    address = f"unix:{daemon.unix_socket}"
    for said in ("org/tiny@r1", None):
        with pagoda.connect(address, model=said) as client:
            assert client.cache.model_fingerprint == "org/tiny@r1"
    for said in ("org/tiny@r2", "org/tiny", "org/other@r1"):
        with pytest.raises(pagoda.Conflict, match=f'is for the model "org/tiny@r1", the session for "{said}"') as refusal:
            pagoda.connect(address, model=said)
        assert refusal.value.reason == "MODEL_MISMATCH"


def test_a_lease_that_the_daemon_does_not_give_is_a_bad_request(daemon):
    with pytest.raises(pagoda.BadRequest) as failure:
        pagoda.connect(f"unix:{daemon.unix_socket}", lease=61)
    assert failure.value.reason == "INVALID_ARGUMENT"
    with pytest.raises(ValueError):
        pagoda.connect(f"unix:{daemon.unix_socket}", lease=0.0001)


def test_sessions_have_their_number(start_daemon):
    daemon = start_daemon(server={"max_sessions": 1})
    with pagoda.connect(f"unix:{daemon.unix_socket}"):
        with pytest.raises(pagoda.Exhausted) as failure:
            pagoda.connect(f"unix:{daemon.unix_socket}")
    assert failure.value.reason == "TOO_MANY_SESSIONS"
    assert failure.value.retry_after > 0


def test_a_daemon_that_shuts_down_is_unavailable(start_daemon):
    daemon = start_daemon()
    client = pagoda.connect(f"unix:{daemon.unix_socket}", lease=60)
    assert daemon.terminate() == 0
    with pytest.raises(pagoda.Unavailable):
        client.match([1, 2])
    with pytest.raises(pagoda.Unavailable):
        client.close()
    client.close()
