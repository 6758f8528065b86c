"""Calls whose answers nobody reads, connections that never acknowledge SETTINGS, and requests that
never end. The daemon and its engine bound them, and other callers are served."""

import contextlib
import itertools
import threading

import pytest
from hostile_wire import HEALTH, calls, greet
from pagoda_client import Client, authorized
from test_generate import GOLDEN
from test_header_flood import Listener
from test_hostile_wire import resident_bytes
from pagoda.v1 import admin_pb2, admin_pb2_grpc, engine_pb2, engine_pb2_grpc, events_pb2, events_pb2_grpc

CONNECTIONS = 20
STREAMS = 5000  # On each connection.
MAX_CALLS = 1024
# Over TLS an ended connection goes at the next ping, so twice the limit can be open.
MAX_GROWTH_BYTES = {"unix": 64 << 20, "tls": 128 << 20}
# Twice MAX_CALLS answered calls are open, and as many of connections that are being closed.
MAX_ANSWERED_GROWTH_BYTES = 256 << 20
OPERATOR, A, B = "operator-0123456789abcdef", "tenant-a-0123456789abcdef", "tenant-b-0123456789abcdef"
CALL_SECONDS = 20


class Flood:
    """Connections that send calls until all are sent or the daemon ends them. Their window is 0,
    and they read nothing after the SETTINGS."""

    def __init__(self, listener):
        self.listener = listener
        self.connections, self.threads = [], []

    def open(self, frames, acknowledge=True):
        connection = self.listener.connect()
        connection.settimeout(CALL_SECONDS)
        self.connections.append(connection)
        self.threads.append(threading.Thread(target=self._send, args=(connection, frames, acknowledge)))
        self.threads[-1].start()

    def _send(self, connection, frames, acknowledge):
        # An OSError: the other side has ended the connection, or reads no more.
        with contextlib.suppress(OSError):
            greet(connection, acknowledge)
            while piece := b"".join(itertools.islice(frames, 100)):
                connection.sendall(piece)

    def wait(self):
        for thread in self.threads:
            thread.join()

    def has_lost_one(self, connections):
        """Whether the other side has ended one of the connections. REQUIRES: nobody sends."""
        for connection in connections:
            connection.settimeout(0.05)
            try:
                while connection.recv(65536):
                    pass
                return True
            except TimeoutError:
                continue
            except OSError:
                return True
        return False

    def close(self):
        for connection in self.connections:
            connection.close()


@pytest.mark.parametrize("kind", ["unix", "tls"])
@pytest.mark.parametrize("acknowledge,whole", [(False, True), (True, False), (True, True)])
def test_streams_without_credentials_take_little_memory(start_daemon, tmp_path, kind, acknowledge, whole):
    listener = Listener(kind, start_daemon, tmp_path, {"max_calls": MAX_CALLS})
    with Client(listener.channel(), "b") as client, contextlib.closing(Flood(listener)) as flood:
        before = resident_bytes(listener.daemon.process)
        for _ in range(CONNECTIONS):
            flood.open(calls(HEALTH, STREAMS, whole), acknowledge)
        for _ in range(200):
            client.match(list(range(64)))
        flood.wait()
        growth = resident_bytes(listener.daemon.process) - before
        print(f"{kind}, acknowledge={acknowledge}, whole={whole}: growth {growth >> 20} MiB")
        assert growth < (MAX_ANSWERED_GROWTH_BYTES if acknowledge and whole else MAX_GROWTH_BYTES[kind])
        client.match(list(range(64)))
        assert listener.refused() > 0


LEGAL_CALLS = 120


def test_legal_load_over_tls_is_not_cut(start_daemon, tmp_path):
    """Opens as many streams as max_calls allows. Strangers hold more places than that, and then
    flood the daemon."""
    listener = Listener("tls", start_daemon, tmp_path, {"max_calls": LEGAL_CALLS})
    channel = listener.channel()
    admin = admin_pb2_grpc.AdminServiceStub(channel)
    watch = events_pb2_grpc.EventServiceStub(channel).Watch
    with contextlib.closing(Flood(listener)) as flood:
        for _ in range(CONNECTIONS):
            flood.open(calls(HEALTH, 15, whole=False))
        flood.wait()
        watches = [watch(events_pb2.WatchRequest(snapshot=True)) for _ in range(LEGAL_CALLS)]
        for call in watches:
            next(call)
        for _ in range(CONNECTIONS):
            flood.open(calls(HEALTH, STREAMS, whole=False))
        for _ in range(20):  # Operators have places beyond max_calls.
            admin.GetStatus(admin_pb2.GetStatusRequest(), timeout=CALL_SECONDS)
        flood.wait()
        assert listener.refused() > 0, "the attack reached no limit"
        for call in watches:
            assert call.is_active()
            call.cancel()


def test_legal_generations_over_tls_are_not_cut(start_daemon, tmp_path):
    """Makes as many calls as max_calls allows the engine. Most of them wait their turn. Strangers
    hold more places than that, and then flood the engine. The daemon goes on."""
    listener = Listener("tls", start_daemon, tmp_path, {"max_calls": LEGAL_CALLS // 2}, of="the engine",
                        engine={"model_dir": str(GOLDEN), "grpc_address": "127.0.0.1:0"}, cache={"layers": None, "primary": 1024})
    generate = engine_pb2_grpc.EngineServiceStub(listener.channel()).Generate
    with contextlib.closing(Flood(listener)) as flood:
        for _ in range(CONNECTIONS):
            flood.open(calls(HEALTH, 15, whole=False))
        flood.wait()
        generations = [generate(engine_pb2.GenerateRequest(prompt_tokens=[5, 6, 7], max_new_tokens=380)) for _ in range(LEGAL_CALLS // 2)]
        for _ in range(CONNECTIONS):
            flood.open(calls(HEALTH, STREAMS, whole=False))
        for _ in range(20):
            listener.daemon.status()
        flood.wait()
        listener.daemon.wait_until(lambda _: flood.has_lost_one(flood.connections[-CONNECTIONS:]))
        for call in generations:
            assert sum(len(response.tokens) for response in call) == 380


@pytest.mark.parametrize("path", ["AdminService/GetStatus", "AdminService/ListCaches", "CacheService/Execute"])
def test_answers_that_a_tenant_does_not_take_keep_nobody_out(start_daemon, tmp_path, path):
    """The tenant may not call the first method, and may call the second. The third lacks a
    session."""
    listener = Listener("unix", start_daemon, tmp_path, {"max_calls": MAX_CALLS}, operator_token=OPERATOR,
                        secrets={"a.tokens": A, "b.tokens": B}, tenants=[{"name": name, "tokens_file": f"{name}.tokens"} for name in ("a", "b")])
    daemon = listener.daemon
    with Client(authorized(daemon.connect(), B), "b") as client, contextlib.closing(Flood(listener)) as flood:
        for _ in range(5):
            flood.open(calls(f"/pagoda.v1.{path}", 2000, token=A))
        for _ in range(20):
            client.match(list(range(64)))
            daemon.status()
        flood.wait()
        client.match(list(range(64)))
        daemon.status()
