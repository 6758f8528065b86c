"""How supervisors see a daemon's life: systemd through sd_notify, Kubernetes through the probes of
deploy/kubernetes."""

import os
import pathlib
import signal
import socket

import grpc
import pytest
import yaml
from pagoda_client import Client
from pagoda_daemon import CALL_SECONDS, QUIET_STOP_SECONDS, Daemon
from pagoda.v1 import cache_pb2, events_pb2, events_pb2_grpc, status_pb2

KUBERNETES = pathlib.Path(__file__).parents[3] / "deploy" / "kubernetes"
SERVING = b"\x08\x01"  # grpc.health.v1.HealthCheckResponse {1: 1}
WATCHDOG_MICROSECONDS = 100_000
# Their events have more bytes than flow control sends to a subscriber that does not read.
STALLED_BATCHES = 16
SEQUENCES_PER_BATCH = 1000
LARGE_TOKEN = 1 << 30


class NotifySocket:
    """The socket of a service manager."""

    def __init__(self, path):
        self.path = path
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(path))
        self.socket.settimeout(CALL_SECONDS)

    def receive(self):
        """The next message as {variable: value}; fails where none comes."""
        return dict(line.split("=", 1) for line in self.socket.recv(4096).decode().splitlines())

    def receive_until(self, variable):
        """The messages up to the first one with `variable`, that one included."""
        messages = []
        while not messages or variable not in messages[-1]:
            messages.append(self.receive())
        return messages


@pytest.fixture
def notify_socket(tmp_path, monkeypatch):
    listening = NotifySocket(tmp_path / "notify.sock")
    monkeypatch.setenv("NOTIFY_SOCKET", str(listening.path))
    yield listening
    listening.socket.close()


def make_daemon(tmp_path, **server):
    folder = tmp_path / "daemon"
    folder.mkdir()
    return Daemon(folder, server=server, events={"max_events": 1_000_000})


def health(daemon):
    return daemon.channel.unary_unary("/grpc.health.v1.Health/Check")(b"\x0a\x00", timeout=CALL_SECONDS)


def stall_a_subscriber(daemon):
    """A Watch whose client has not read what there is: a drain does not end before it has."""
    watch = events_pb2_grpc.EventServiceStub(daemon.connect()).Watch(events_pb2.WatchRequest())
    with Client(daemon.channel) as client:
        for batch in range(STALLED_BATCHES):
            operations = []
            for number in range(SEQUENCES_PER_BATCH):
                tokens = [LARGE_TOKEN + batch * SEQUENCES_PER_BATCH + number] * 120
                operations += [
                    cache_pb2.Operation(add_sequence=cache_pb2.AddSequenceRequest(sequence_id=1, tokens=tokens)),
                    cache_pb2.Operation(commit_tokens=cache_pb2.CommitTokensRequest(sequence_id=1, computed_tokens=120)),
                    cache_pb2.Operation(free_sequence=cache_pb2.FreeSequenceRequest(sequence_id=1))]
            assert not any(result.HasField("error") for result in client.execute(*operations))
    return watch


def read_to_its_end(watch):
    with pytest.raises(grpc.RpcError) as end:
        for _ in watch:
            pass
    assert end.value.code() == grpc.StatusCode.UNAVAILABLE


def test_the_service_manager_hears_of_the_start_the_service_and_the_drain(tmp_path, notify_socket):
    with make_daemon(tmp_path) as daemon:
        *starting, ready = notify_socket.receive_until("READY")
        assert starting and all(message.keys() == {"STATUS"} and message["STATUS"].startswith("starting") for message in starting)
        assert ready["READY"] == "1" and str(daemon.unix_socket) in ready["STATUS"]
        assert health(daemon) == SERVING
    assert notify_socket.receive() == {"STOPPING": "1", "STATUS": "draining: calls can go on for 20s"}
    assert notify_socket.receive() == {"STATUS": "drained"}


def test_the_socket_serves_when_the_service_manager_hears_ready(tmp_path, notify_socket):
    daemon = make_daemon(tmp_path).spawn()
    try:
        notify_socket.receive_until("READY")
        daemon.channel = daemon.connect()
        assert health(daemon) == SERVING
    finally:
        daemon.terminate()


def test_the_watchdog_is_answered_while_the_daemon_serves_and_drains(tmp_path, notify_socket, monkeypatch):
    monkeypatch.setenv("WATCHDOG_USEC", str(WATCHDOG_MICROSECONDS))
    with make_daemon(tmp_path) as daemon:
        notify_socket.receive_until("READY")
        for _ in range(3):
            notify_socket.receive_until("WATCHDOG")
        watch = stall_a_subscriber(daemon)
        daemon.process.send_signal(signal.SIGTERM)
        notify_socket.receive_until("STOPPING")
        for _ in range(3):
            *others, beat = notify_socket.receive_until("WATCHDOG")
            assert not others and beat == {"WATCHDOG": "1"}
        notify_socket.socket.close()  # A sender to a full socket would wait.
        read_to_its_end(watch)
        assert daemon.wait(QUIET_STOP_SECONDS) == 0


def test_a_process_that_the_watchdog_does_not_watch_leaves_it_alone(tmp_path, notify_socket, monkeypatch):
    monkeypatch.setenv("WATCHDOG_USEC", str(WATCHDOG_MICROSECONDS))
    monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()))
    with make_daemon(tmp_path):
        notify_socket.receive_until("READY")
    assert all("WATCHDOG" not in message for message in notify_socket.receive_until("STOPPING"))


def probe_paths(file):
    (container,) = yaml.safe_load((KUBERNETES / file).read_text())["spec"]["template"]["spec"]["containers"]
    return [container[f"{kind}Probe"]["httpGet"]["path"] for kind in ("startup", "readiness", "liveness")]


@pytest.mark.parametrize("file", ["deployment.yaml", "node/daemonset.yaml"])
def test_the_probes_of_kubernetes_tell_a_drain_from_death(file, tmp_path):
    startup, readiness, liveness = probe_paths(file)
    with make_daemon(tmp_path, probe_address="127.0.0.1:0") as daemon:
        daemon.http_address = daemon.probe_address
        assert [daemon.http(path)[0] for path in (startup, readiness, liveness)] == [200, 200, 200]
        watch = stall_a_subscriber(daemon)
        daemon.process.send_signal(signal.SIGTERM)
        daemon.wait_until(lambda draining: draining.status().draining)
        assert daemon.status().state == status_pb2.DAEMON_STATE_DRAINING
        assert daemon.http(readiness) == (503, "draining\n")
        assert daemon.http(liveness) == (200, "ok\n")
        read_to_its_end(watch)
        assert daemon.wait(QUIET_STOP_SECONDS) == 0


def test_metrics_are_scraped_at_the_address_of_the_container(tmp_path):
    with make_daemon(tmp_path, http_address="0.0.0.0:0", http_insecure=True) as daemon:
        daemon.http_address = daemon.http_address.replace("0.0.0.0", "127.0.0.1")
        assert daemon.http("/metrics")[0] == 200
        assert "open to other machines" in daemon.log.read_text()
