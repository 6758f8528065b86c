"""Connections that send what no client would send. The daemon survives, keeps its memory in bounds
and serves the good connections.

PAGODA_WIRE_CONNECTIONS sets their number (2,000), and PAGODA_WIRE_SEED what they send (1)."""

import os
import pathlib
import socket

import pytest
from hostile_wire import END_HEADERS, END_STREAM, HEADERS, PREFACE, SETTINGS, Attacker, frame, header
from pagoda_client import Client
from pagoda.v1 import admin_pb2, cache_pb2, events_pb2

CONNECTIONS = int(os.environ.get("PAGODA_WIRE_CONNECTIONS", "2000"))
SEED = int(os.environ.get("PAGODA_WIRE_SEED", "1"))
# The growth of the daemon's memory. Measured: 0 to 13 MiB.
MAX_GROWTH_BYTES = 64 << 20
# The growth when calls begin and are cancelled by the thousand. gRPC keeps each call until it has
# processed the cancel. Measured: 90 to 175 MiB.
MAX_RESET_GROWTH_BYTES = 512 << 20
HELD_CONNECTIONS = 200
FLOODS = 10
FRAMES_PER_FLOOD = 1000
HELD_HTTP_CONNECTIONS = 64
PROBE_SECONDS = 5  # The timeout of deploy/kubernetes/deployment.yaml.


def resident_bytes(process):
    for line in pathlib.Path(f"/proc/{process.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) << 10
    raise AssertionError("the process has ended")


def serve_one(daemon):
    """A good client on a connection of its own gets what it asks for."""
    for address in (None, daemon.grpc_address):
        client = Client(daemon.connect(address), "good")
        blocks = client.allocate(2)
        client.free(blocks)
        client.close()


@pytest.fixture
def attacked(start_daemon):
    """(daemon, attacker). Afterwards the daemon is the same process, serves, has grown little, and
    has nothing left of the attack."""
    # A mutated call can open a session with any lease. Its lease must end before this test does.
    daemon = start_daemon(sessions={"default_lease": "20s", "max_lease": "20s"})
    # Any daemon takes some memory for its first clients. It is not counted.
    serve_one(daemon)
    before = resident_bytes(daemon.process)
    victim = Client(daemon.connect(), "victim")
    calls = [
        ("/pagoda.v1.CacheService/OpenSession", cache_pb2.OpenSessionRequest(client_name="evil", lease_ms=100)),
        ("/pagoda.v1.CacheService/Execute", cache_pb2.ExecuteRequest(session=victim.session, batch=cache_pb2.Batch(
            operations=[cache_pb2.Operation(match_prefix=cache_pb2.MatchPrefixRequest(tokens=range(64))),
                        cache_pb2.Operation(describe_pools=cache_pb2.DescribePoolsRequest())]))),
        ("/pagoda.v1.CacheService/Session", cache_pb2.SessionRequest(session=victim.session, batch_id=1)),
        ("/pagoda.v1.EventService/Watch", events_pb2.WatchRequest()),
        ("/pagoda.v1.AdminService/GetStatus", admin_pb2.GetStatusRequest()),
        ("/grpc.health.v1.Health/Watch", admin_pb2.GetStatusRequest()),
        ("/pagoda.v1.Nobody/Knows", admin_pb2.GetStatusRequest()),
    ]
    attacker = Attacker(daemon.unix_socket, daemon.grpc_address, [(path, request.SerializeToString()) for path, request in calls],
                        SEED)
    attacker.max_growth_bytes = MAX_GROWTH_BYTES
    yield daemon, attacker
    assert daemon.process.poll() is None, daemon.log.read_text()
    serve_one(daemon)
    attacker.release()
    grown = resident_bytes(daemon.process) - before
    print(f"resident memory has grown by {grown >> 20} MiB")
    assert grown < attacker.max_growth_bytes


@pytest.mark.parametrize("kind", ["garbage", "garbage_frames", "mutated_call", "mutated_message"])
def test_bytes_that_mean_nothing(attacked, kind):
    daemon, attacker = attacked
    rounds = CONNECTIONS // 4
    for number in range(rounds):
        attacker.send(getattr(attacker, kind)())
        if number % 100 == 0:
            serve_one(daemon)


def test_calls_that_never_end(attacked):
    daemon, attacker = attacked
    for _ in range(HELD_CONNECTIONS):
        attacker.hold(attacker.half_open())
    serve_one(daemon)


@pytest.mark.parametrize("flood", ["reset_flood", "ping_flood", "settings_flood", "continuation_flood"])
def test_floods(attacked, flood):
    daemon, attacker = attacked
    if flood == "reset_flood":
        attacker.max_growth_bytes = MAX_RESET_GROWTH_BYTES
    for _ in range(FLOODS):
        attacker.send(getattr(attacker, flood)(FRAMES_PER_FLOOD))
        serve_one(daemon)


def test_a_header_cannot_forge_a_line_of_the_log(start_daemon):
    daemon = start_daemon()
    fields = {":method": "POST", ":scheme": "http", ":path": "/x", ":authority": "localhost", "te": "x\r\x1b[2J2026 error forged"}
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(daemon.unix_socket))
        request = b"".join(header(name, value) for name, value in fields.items())
        connection.sendall(PREFACE + frame(SETTINGS) + frame(HEADERS, END_HEADERS | END_STREAM, 1, request))
        daemon.wait_until(lambda daemon: b"2026 error forged" in daemon.log.read_bytes())
    log = daemon.log.read_bytes()
    assert rb"x\r\u001b[2J2026 error forged" in log
    assert b"\r" not in log and b"\x1b" not in log


def test_probes_are_answered_beside_http_requests_that_never_come(start_daemon):
    daemon = start_daemon(server={"http_address": "127.0.0.1:0"})
    host, port = daemon.http_address.rsplit(":", 1)
    held = []
    for _ in range(HELD_HTTP_CONNECTIONS):
        connection = socket.create_connection((host, int(port)))
        connection.sendall(b"GET /l")
        held.append(connection)
    with socket.create_connection((host, int(port)), timeout=PROBE_SECONDS) as probe:
        probe.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert probe.recv(15) == b"HTTP/1.1 200 OK"
    for connection in held:
        connection.close()
