"""Calls whose answers nobody reads, connections that never acknowledge SETTINGS, and requests that
never end. The daemon bounds them, and other callers are served."""

import contextlib
import itertools
import socket
import statistics
import struct
import threading
import time

import pytest
from hostile_wire import ACK, DATA, END_HEADERS, END_STREAM, HEADERS, PREFACE, SETTINGS, call_headers, frame, header, message
from pagoda_client import Client, authorized
from test_hostile_wire import resident_bytes

CONNECTIONS = 20
STREAMS = 5000  # On each connection.
MAX_CALLS = 1024
MAX_GROWTH_BYTES = 64 << 20
OPERATOR, A, B = "operator-0123456789abcdef", "tenant-a-0123456789abcdef", "tenant-b-0123456789abcdef"
CALL_SECONDS = 20
INITIAL_WINDOW_SIZE = 4
NO_WINDOW = struct.pack(">HI", INITIAL_WINDOW_SIZE, 0)
HEALTH = "/grpc.health.v1.Health/Check"


def calls(path, streams, whole=True, token=None):
    """Many calls of one method. If not `whole`, their messages never come."""
    block = call_headers(path) + (header("authorization", f"Bearer {token}") if token else b"")
    for stream in range(1, 2 * streams, 2):
        yield frame(HEADERS, END_HEADERS, stream, block) + (frame(DATA, END_STREAM, stream, message(b"")) if whole else b"")


class Flood:
    """Connections that send calls until all are sent or the daemon ends them. Their window is 0,
    and they read nothing after the SETTINGS."""

    def __init__(self, daemon):
        self.path = str(daemon.unix_socket)
        self.connections, self.threads = [], []

    def open(self, frames, acknowledge=True):
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(CALL_SECONDS)
        connection.connect(self.path)
        self.connections.append(connection)
        self.threads.append(threading.Thread(target=self._send, args=(connection, frames, acknowledge)))
        self.threads[-1].start()

    def _send(self, connection, frames, acknowledge):
        # An OSError: the daemon has ended the connection, or reads no more.
        with contextlib.suppress(OSError):
            connection.sendall(PREFACE + frame(SETTINGS, 0, 0, NO_WINDOW))
            seen = b""
            while acknowledge and frame(SETTINGS, ACK) not in seen:
                seen += connection.recv(65536)
            if acknowledge:
                connection.sendall(frame(SETTINGS, ACK))
            while piece := b"".join(itertools.islice(frames, 100)):
                connection.sendall(piece)

    def wait(self):
        for thread in self.threads:
            thread.join()

    def close(self):
        for connection in self.connections:
            connection.close()


def seconds_of_calls(client, count=200):
    seconds = []
    for _ in range(count):
        before = time.perf_counter()
        client.match(list(range(64)))
        seconds.append(time.perf_counter() - before)
    return seconds


def p99(seconds):
    return statistics.quantiles(seconds, n=100)[98]


@pytest.mark.parametrize("acknowledge,whole", [(False, True), (True, False)])
def test_streams_without_credentials_take_little_memory(start_daemon, acknowledge, whole):
    daemon = start_daemon(server={"max_calls": MAX_CALLS})
    with Client(daemon.connect(), "b") as client, contextlib.closing(Flood(daemon)) as flood:
        alone = seconds_of_calls(client)
        before = resident_bytes(daemon.process)
        for _ in range(CONNECTIONS):
            flood.open(calls(HEALTH, STREAMS, whole), acknowledge)
        beside = seconds_of_calls(client)
        flood.wait()
        growth = resident_bytes(daemon.process) - before
        print(f"acknowledge={acknowledge}, whole={whole}: growth {growth >> 20} MiB, p99 {p99(alone) * 1e3:.2f} ms alone, "
              f"{p99(beside) * 1e3:.2f} ms beside, slowest {max(beside) * 1e3:.0f} ms")
        assert growth < MAX_GROWTH_BYTES
        daemon.status()


@pytest.mark.parametrize("path", ["AdminService/GetStatus", "AdminService/ListCaches", "CacheService/Execute"])
def test_answers_that_a_tenant_does_not_take_keep_nobody_out(start_daemon, path):
    """The tenant may not call the first method, and may call the second. The third lacks a
    session."""
    daemon = start_daemon(server={"max_calls": MAX_CALLS}, operator_token=OPERATOR, secrets={"a.tokens": A, "b.tokens": B},
                          tenants=[{"name": name, "tokens_file": f"{name}.tokens"} for name in ("a", "b")])
    with Client(authorized(daemon.connect(), B), "b") as client, contextlib.closing(Flood(daemon)) as flood:
        for _ in range(5):
            flood.open(calls(f"/pagoda.v1.{path}", 2000, token=A))
        for _ in range(20):
            client.match(list(range(64)))
            daemon.status()
        flood.wait()
        client.match(list(range(64)))
        daemon.status()
