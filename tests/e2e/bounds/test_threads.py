"""Threads: none that a caller can add without a bound, and a daemon that lives on when the system
refuses new ones."""

import os
import socket
import struct

import pagoda
import pytest
from caches_daemon import CachesDaemon
from hostile_wire import ACK, DATA, END_HEADERS, END_STREAM, HEADERS, PREFACE, SETTINGS, WINDOW_UPDATE, call_headers, frame, message
from pagoda_daemon import Daemon
from test_daemon import health

CONNECTIONS = 10
STREAMS = 2000  # The streams of each connection.
MAX_CALLS = 8192  # The default.
# gRPC adds a few threads of its own for timers.
FEW = 10
LIST_SERVICES = b"\x3a\x01*"
FRAME_HEADER = 9


def threads(daemon):
    return len(os.listdir(f"/proc/{daemon.process.pid}/task"))


# --- Callers ---


def count_answers(connection):
    """How many streams of the connection got content; the daemon refused the others. Reads until it
    is known of every stream."""
    answered, refused, rest = set(), set(), b""
    while len(answered) + len(refused) < STREAMS:
        received = connection.recv(1 << 16)
        assert received, f"the daemon closed the connection after {len(answered)} answers"
        rest += received
        while len(rest) >= FRAME_HEADER:
            size = int.from_bytes(rest[:3], "big")
            if len(rest) < FRAME_HEADER + size:
                break
            kind, flags, stream = struct.unpack(">BBI", rest[3:FRAME_HEADER])
            if kind == DATA:
                answered.add(stream)
            if kind == HEADERS and flags & END_STREAM:
                refused.add(stream)
            if kind == SETTINGS and not flags & ACK:
                connection.sendall(frame(SETTINGS, ACK))
            rest = rest[FRAME_HEADER + size:]
    return len(answered)


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
def test_open_reflection_streams_add_no_threads(daemon, version):
    path = f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo"
    before = threads(daemon)
    connections, answers = [], []
    for _ in range(CONNECTIONS):
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(60)
        connection.connect(str(daemon.unix_socket))
        connections.append(connection)
        # Acknowledged before the daemon's SETTINGS arrive: otherwise it takes 100 streams.
        connection.sendall(PREFACE + frame(SETTINGS) + frame(SETTINGS, ACK)
                           + frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", 1 << 30)))
        for first in range(0, STREAMS, 100):
            connection.sendall(b"".join(
                frame(HEADERS, END_HEADERS, stream, call_headers(path)) + frame(DATA, 0, stream, message(LIST_SERVICES))
                for stream in range(2 * first + 1, 2 * (first + 100), 2)))
        answers.append(count_answers(connection))
    # They stay open. Above max_calls the daemon refuses them.
    assert answers[0] == STREAMS and MAX_CALLS - FEW <= sum(answers) <= MAX_CALLS, answers
    assert threads(daemon) < before + FEW
    for connection in connections:
        connection.close()
    assert health(daemon.connect(), "") == b"\x08\x01"


# --- The system refuses threads ---


class Limited:
    """A daemon whose threads the test can refuse from now on."""

    def limit(self):
        (self.folder / "no-threads").touch()

    def release(self):
        (self.folder / "no-threads").unlink()

    def command(self):
        return ["env", f"LD_PRELOAD={os.environ['PAGODA_NO_THREADS']}", f"NO_THREADS_FILE={self.folder / 'no-threads'}",
                *super().command()]


class LimitedCaches(Limited, CachesDaemon):
    pass


class LimitedDaemon(Limited, Daemon):
    pass


def test_a_cache_without_threads_is_refused_and_the_daemon_serves_on(tmp_path):
    with LimitedCaches(tmp_path, server={"http_address": "127.0.0.1:0"}) as daemon:
        daemon.open("before")
        free = daemon.free()
        daemon.limit()
        with pytest.raises(pagoda.Exhausted) as refused:
            daemon.open("refused")
        assert "the system refuses the thread pagoda-" in str(refused.value)
        assert "threads; what can limit them" in str(refused.value)
        # Nothing of it is left, and the others go on.
        assert set(daemon.caches()) == {"before"} and daemon.free() == free
        daemon.release()
        daemon.open("after")
        assert set(daemon.caches()) == {"before", "after"}


@pytest.mark.parametrize("disk", [False, True])
def test_a_daemon_that_gets_no_new_thread_drains(tmp_path, disk):
    """The threads of a shutdown exist from the start: those of a second signal, of HTTP's end and
    of the disk's last writes."""
    tiers = [{"name": "near", "medium": "host", "size": 64}]
    if disk:
        tiers.append({"name": "far", "medium": "disk", "path": str(tmp_path / "disk"), "size": 64})
    daemon = LimitedDaemon(tmp_path, server={"http_address": "127.0.0.1:0"}, cache={"tiers": tiers, "model": {"name": "org/tiny"}})
    with daemon:
        assert daemon.http("/readyz")[0] == 200
        daemon.limit()
        daemon.check_nothing_leaked()
        for channel in daemon.channels:
            channel.close()
        assert daemon.terminate() == 0, daemon.log.read_text()


def test_a_daemon_that_gets_no_thread_says_so_at_its_start(tmp_path):
    daemon = LimitedDaemon(tmp_path)
    daemon.limit()
    assert daemon.run_to_its_end() == 1
    assert "pagodad: the system refuses the thread pagoda-" in daemon.log.read_text()
