"""Two tenants: what one of them left in quarantine is not the other's to end, whatever it knows."""

import contextlib
import pathlib
import subprocess
import sys

import grpc
import pytest
from pagoda_client import Client, ask_to_map, authorized, call_status, reason_of
from pagoda.v1 import admin_pb2, cache_pb2, cache_pb2_grpc, mapping_pb2, types_pb2
from warm_daemon import WarmDaemon

RED, BLUE, OPERATOR = (f"token-of-{name}-0123456789" for name in ("red", "blue", "the-operator"))
BLOCKS = 5
# Red's engine. It maps for writing, allocates blocks, prints its session, and then only waits.
WRITER = f"""
import sys, time
import pool_view
from pagoda_client import Client, authorized, connect
client = Client(authorized(connect(sys.argv[1]), "{RED}"), "writer", lease_ms=500)
kv = pool_view.map_pool(client.pools()[0])
kv[client.allocate({BLOCKS})[0].slot_index] = 1
print(client.session.SerializeToString().hex(), flush=True)
time.sleep(600)
"""
CALLS = ("CloseSession", "KeepAlive", "Execute", "Session")


@pytest.fixture
def daemon(tmp_path):
    """A daemon that outlives itself, with the tenants red and blue and an operator."""
    daemon = WarmDaemon(tmp_path)
    daemon.operator_token = OPERATOR
    daemon.config["operators"] = {"tokens_file": daemon.write_secret("operators.tokens", OPERATOR)}
    daemon.config["tenants"] = [{"name": name, "tokens_file": daemon.write_secret(f"{name}.tokens", token)}
                                for name, token in (("red", RED), ("blue", BLUE))]
    with contextlib.ExitStack() as stack:
        stack.callback(lambda: [path.unlink() for path in daemon.files()])
        yield stack.enter_context(daemon)


@pytest.fixture
def writer(daemon):
    """(The process of red's writer, its session). The session has ended and is quarantined, while
    the process lives."""
    with subprocess.Popen([sys.executable, "-c", WRITER, f"unix:{daemon.unix_socket}"], cwd=pathlib.Path(__file__).parent,
                          stdout=subprocess.PIPE, text=True) as process:
        try:
            session = types_pb2.SessionRef.FromString(bytes.fromhex(process.stdout.readline()))
            daemon.wait_until(lambda daemon: daemon.status().quarantines == 1)
            yield process, session
        finally:
            process.kill()


def outcome(daemon, token, call, session):
    """What a call that names the session comes to: "OK" or the reason."""
    channel = daemon.connect()
    stub = cache_pb2_grpc.CacheServiceStub(channel if token is None else authorized(channel, token))
    request = {"CloseSession": cache_pb2.CloseSessionRequest, "KeepAlive": cache_pb2.KeepAliveRequest,
               "Execute": cache_pb2.ExecuteRequest, "Session": cache_pb2.SessionRequest}[call](session=session)
    try:
        if call == "Session":
            next(stub.Session(iter([request]), timeout=20))
        else:
            getattr(stub, call)(request, timeout=20)
    except grpc.RpcError as error:
        return reason_of(call_status(error))
    return "OK"


def forgeries(session):
    """References that are not the session's, and one that names none."""
    yield types_pb2.SessionRef(session_id=session.session_id, token=session.token)
    yield types_pb2.SessionRef(session_id=session.session_id, token=session.token, token_high=session.token_high ^ 1)
    yield types_pb2.SessionRef(session_id=session.session_id, token=session.token ^ 1, token_high=session.token_high)


def test_another_tenant_does_not_end_a_quarantine_even_with_the_sessions_token(daemon, writer):
    process, session = writer
    assert daemon.primary().in_flight_blocks == BLOCKS
    for call in CALLS:
        assert outcome(daemon, BLUE, call, session) == "UNKNOWN_SESSION", call
        assert outcome(daemon, None, call, session) == "UNAUTHENTICATED", call
    assert outcome(daemon, RED, "KeepAlive", session) == "STALE_SESSION", "its own tenant learns that the session has ended"
    for forged in forgeries(session):
        assert outcome(daemon, RED, "CloseSession", forged) == "STALE_SESSION"
        for access in (mapping_pb2.MAP_ACCESS_READ, mapping_pb2.MAP_ACCESS_READ_WRITE):
            answer, descriptors = ask_to_map(f"{daemon.unix_socket}.map", mapping_pb2.MapPoolsRequest(session=forged, access=access))
            assert answer.HasField("error") and not descriptors
    assert daemon.primary().in_flight_blocks == BLOCKS and process.poll() is None
    assert outcome(daemon, RED, "CloseSession", session) == "OK"
    assert daemon.primary().in_flight_blocks == 0


def test_after_a_restart_another_tenant_does_not_end_it_either(daemon, writer):
    process, session = writer
    daemon.again(WarmDaemon.kill)
    held = daemon.primary().in_flight_blocks
    assert held == 64, "the old writer can write to every block that is not cached"
    nobody = types_pb2.SessionRef()
    for token, expected in ((BLUE, "UNKNOWN_SESSION"), (None, "UNAUTHENTICATED")):
        for named in (session, nobody, *forgeries(session)):
            assert outcome(daemon, token, "CloseSession", named) == expected
    for named in (nobody, *forgeries(session)):
        assert outcome(daemon, OPERATOR, "CloseSession", named) == "UNKNOWN_SESSION"
    assert daemon.primary().in_flight_blocks == held and process.poll() is None
    (quarantine,) = daemon.admin.ListQuarantines(admin_pb2.ListQuarantinesRequest(), timeout=20).quarantines
    assert list(quarantine.writer_pids) == [process.pid]
    assert outcome(daemon, RED, "CloseSession", session) == "OK"
    daemon.wait_until(lambda daemon: daemon.primary().in_flight_blocks == 0)


def test_tokens_do_not_repeat_and_fill_both_halves(daemon):
    channel = authorized(daemon.connect(), BLUE)
    sessions = [Client(channel).session for _ in range(32)]
    halves = [half for session in sessions for half in (session.token, session.token_high)]
    assert len(set(halves)) == len(halves) and all(halves)
