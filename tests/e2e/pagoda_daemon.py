"""A pagodad of the test's own, started and stopped like an operator would."""

import json
import os
import pathlib
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request

import grpc
from pagoda.v1 import admin_pb2, admin_pb2_grpc

PAGODAD = pathlib.Path(os.environ["PAGODA_BIN"]) / "pagodad"
START_SECONDS = 30
STOP_SECONDS = 15

CACHE = {
    "name": "e2e",
    "tokens_per_block": 4,
    "kv_dtype": "float32",
    "primary_blocks": 64,
    "layers": {"count": 2, "num_kv_heads": 2, "head_dim": 8},
}


def free_port():
    """A TCP port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Daemon:
    """A daemon with its configuration, socket and log in `folder`. Keyword arguments replace keys of a section."""

    def __init__(self, folder, **sections):
        self.folder = folder
        self.grpc_address = f"127.0.0.1:{free_port()}"
        self.unix_socket = folder / "pagodad.sock"
        self.log = folder / "pagodad.log"
        self.process = None
        self.channels = []
        self.config = {
            "cache": CACHE | {"name": f"e2e-{os.getpid()}-{folder.name}"},
            "server": {"unix_socket": str(self.unix_socket), "grpc_address": self.grpc_address,
                       "http_address": "", "drain_timeout": "3s"},
            "sessions": {"default_lease": "30s", "max_lease": "60s"},
            "events": {"max_events": 10000, "progress_interval": "200ms", "flush_interval": "1ms"},
        }
        for section, keys in sections.items():
            self.config[section] = self.config.get(section, {}) | keys

    def write_config(self):
        path = self.folder / "pagodad.yaml"
        path.write_text(json.dumps(self.config, indent=2))  # JSON is YAML.
        return path

    def spawn(self):
        """Starts the process without waiting for it."""
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen([PAGODAD, "--config", self.write_config()], stdout=log, stderr=log)
        return self

    def start(self):
        """Starts the process and waits until it says that it is ready."""
        self.spawn()
        deadline = time.monotonic() + START_SECONDS
        while "pagodad is ready" not in self.log.read_text():
            assert self.process.poll() is None, f"the daemon ended at its start:\n{self.log.read_text()}"
            assert time.monotonic() < deadline, f"the daemon is not ready:\n{self.log.read_text()}"
            time.sleep(0.01)
        self.channel = self.connect()
        self.admin = admin_pb2_grpc.AdminServiceStub(self.channel)
        return self

    def connect(self, address=None, options=()):
        """A new connection, over the Unix socket unless an address is given."""
        options = [("grpc.use_local_subchannel_pool", 1), *options]
        self.channels.append(grpc.insecure_channel(address or f"unix:{self.unix_socket}", options=options))
        return self.channels[-1]

    def status(self):
        return self.admin.GetStatus(admin_pb2.GetStatusRequest(), timeout=5)

    def primary(self):
        """The blocks of the one window's primary tier, by state. Checks that each slot counts once."""
        tier = self.status().windows[0].tiers[0]
        counted = (tier.free_blocks + tier.cached_blocks + tier.active_blocks + tier.pinned_blocks +
                   tier.in_flight_blocks)
        assert counted == tier.capacity_blocks, tier
        return tier

    def wait_until(self, condition, seconds=10):
        """Waits until `condition(daemon)` holds."""
        deadline = time.monotonic() + seconds
        while not condition(self):
            assert time.monotonic() < deadline, f"did not come in {seconds} s; status:\n{self.status()}"
            time.sleep(0.02)

    def http(self, path):
        """(status code, body) of a GET request."""
        try:
            with urllib.request.urlopen(f"http://{self.config['server']['http_address']}{path}", timeout=5) as reply:
                return reply.status, reply.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def kill(self):
        """kill -9: no drain, no clean-up."""
        self.process.kill()
        self.process.wait(STOP_SECONDS)
        self.process = None

    def terminate(self):
        """SIGTERM; returns the exit status."""
        process, self.process = self.process, None
        process.send_signal(signal.SIGTERM)
        try:
            return process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise AssertionError(f"the daemon did not end on SIGTERM:\n{self.log.read_text()}") from None

    def stop(self):
        """Checks that nothing leaked, then that SIGTERM ends the daemon with exit status 0."""
        if self.process is None:
            return
        status = self.status()
        tier = self.primary()
        if status.sessions == 0 or (status.HasField("engine") and status.sessions == 1):
            assert tier.active_blocks == 0 and tier.in_flight_blocks == 0, f"blocks without an owner: {tier}"
        for channel in self.channels:
            channel.close()
        assert self.terminate() == 0, self.log.read_text()
        assert not self.unix_socket.exists()

    def __enter__(self):
        return self.start()

    def __exit__(self, *error):
        if error[0] is None:
            self.stop()
        elif self.process is not None:
            print(self.log.read_text())
            self.kill()
