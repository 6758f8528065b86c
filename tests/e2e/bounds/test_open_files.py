"""Strangers that connect and say nothing, more of them than the daemon can open files.

gRPC 1.51 stops a listener for ever if accept4 fails. The daemon must serve a client from another
address while the strangers are there, and everyone after they have gone.
"""

import contextlib
import pathlib
import socket

import pytest
from hostile_wire import PREFACE, SETTINGS, frame
from pagoda_daemon import HTTP, Daemon
from pagoda.v1 import admin_pb2, admin_pb2_grpc

FILES = 512  # The daemon's limit. It needs about 60 itself.
PATIENCE_SECONDS = 30


class SmallDaemon(Daemon):
    """A daemon with a low limit of open files."""

    limits = f"{FILES}:{FILES}"

    def command(self):
        return ["prlimit", f"--nofile={self.limits}", *super().command()]


@pytest.fixture
def daemon(tmp_path):
    addresses = {"http_address": "127.0.0.1:0", "probe_address": "127.0.0.1:0"}
    with SmallDaemon(tmp_path, server=addresses) as daemon:
        yield daemon


def split(address):
    host, port = address.rsplit(":", 1)
    return host, int(port)


def connect(daemon, kind, source="127.0.0.1"):
    """A connection to one of the daemon's listeners, over TCP from an address of loopback."""
    if kind in ("unix", "map"):
        path = str(daemon.unix_socket) + (".map" if kind == "map" else "")
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET if kind == "map" else socket.SOCK_STREAM)
        connection.settimeout(PATIENCE_SECONDS)
        connection.connect(path)
        return connection
    address = daemon.grpc_address if kind == "tcp" else daemon.http_address
    return socket.create_connection(split(address), PATIENCE_SECONDS, source_address=(source, 0))


def crowd(daemon, kind, number, held, sources=("127.0.0.1",)):
    """Silent connections, in turn from each address."""
    for index in range(number):
        with contextlib.suppress(ConnectionError, BlockingIOError):
            held.append(connect(daemon, kind, sources[index % len(sources)]))


def greets(connection):
    """Whether gRPC answers an HTTP/2 preface with its SETTINGS."""
    with connection, contextlib.suppress(ConnectionError):
        connection.sendall(PREFACE + frame(SETTINGS))
        answer = connection.recv(9, socket.MSG_WAITALL)
        return len(answer) == 9 and answer[3] == SETTINGS
    return False


def is_served(channel):
    return bool(admin_pb2_grpc.AdminServiceStub(channel).GetStatus(admin_pb2.GetStatusRequest(), timeout=PATIENCE_SECONDS).epoch)


def probe(daemon, path):
    with HTTP.open(f"http://{daemon.probe_address}{path}", timeout=PATIENCE_SECONDS) as reply:
        return reply.status


def refused(daemon, reason):
    name = f'pagoda_refused_connections_total{{reason="{reason}"}} '
    return next(int(float(line[len(name):])) for line in daemon.metrics().splitlines() if line.startswith(name))


def open_files(daemon):
    return len(list(pathlib.Path(f"/proc/{daemon.process.pid}/fd").iterdir()))


@pytest.mark.parametrize("kind", ["tcp", "unix", "map", "http"])
def test_silent_connections_of_one_address_keep_nobody_else_out(daemon, kind):
    other = "tcp" if kind in ("unix", "map") else "unix"
    with contextlib.ExitStack() as stack:
        held = []
        stack.callback(lambda: [connection.close() for connection in held])
        crowd(daemon, kind, 2 * FILES, held)
        assert probe(daemon, "/livez") == 200 and probe(daemon, "/readyz") == 200
        assert greets(connect(daemon, other))
        assert greets(connect(daemon, "tcp", "127.0.0.2"))
        assert open_files(daemon) < FILES * 3 // 4
    for address in (daemon.grpc_address, None):
        daemon.wait_until(lambda daemon: greets(connect(daemon, "unix" if address is None else "tcp")))
        assert is_served(daemon.connect(address))
    if kind in ("tcp", "unix"):  # The other servers close the oldest of their connections before.
        assert refused(daemon, "per_address") > 0


def test_silent_connections_of_many_addresses_leave_files_for_the_daemon(daemon):
    channel = daemon.connect()
    assert is_served(channel)
    with contextlib.ExitStack() as stack:
        held = []
        stack.callback(lambda: [connection.close() for connection in held])
        crowd(daemon, "tcp", 2 * FILES, held, [f"127.0.0.{last}" for last in range(2, 12)])
        daemon.wait_until(lambda daemon: open_files(daemon) > FILES // 2)  # It accepts them in turn.
        assert probe(daemon, "/livez") == 200 and probe(daemon, "/readyz") == 200
        assert is_served(channel)
        assert open_files(daemon) <= FILES * 3 // 4 + 8  # Probes take a few more.
    for address in (daemon.grpc_address, None):
        daemon.wait_until(lambda daemon: greets(connect(daemon, "unix" if address is None else "tcp")))
        assert is_served(daemon.connect(address))
    assert refused(daemon, "open_files") > 0
    assert "connections are refused" in daemon.log.read_text()


def test_the_daemon_raises_its_soft_limit_to_the_hard_one(tmp_path):
    daemon = SmallDaemon(tmp_path)
    daemon.limits = f"128:{FILES}"
    with daemon:
        limits = pathlib.Path(f"/proc/{daemon.process.pid}/limits").read_text()
        soft, hard = next(line.split()[3:5] for line in limits.splitlines() if line.startswith("Max open files"))
        assert (int(soft), int(hard)) == (FILES, FILES)
