"""A pagoda-engine with doors (--serve) over a daemon's cache."""

import json
import re
import signal
import subprocess
import time

from pagoda_client import authorized, connect
from pagoda_daemon import ENGINE, PAGODAD, START_SECONDS, Daemon, sample_of

PAGODA_ENGINE = PAGODAD.with_name(ENGINE)
READY = re.compile(r"pagoda-engine is ready: gRPC on (\S+)(?: and ([^\s,]+))?(?:, HTTP on ([^\s,]+))?\n")
STOP_SECONDS = 60


class ServingEngine:
    """`sections` are the keys of its configuration. `token`: its own, for a session of its own.
    Files with tokens are those of the daemon's folder."""

    def __init__(self, daemon, token=None, arguments=(), **sections):
        self.daemon = daemon
        self.folder = daemon.folder
        self.unix_socket = self.folder / "engine.sock"
        self.log = self.folder / "engine.log"
        self.config = {"server": {"drain_timeout": "20s"},
                       "engine": {"unix_socket": str(self.unix_socket), "grpc_address": "", "http_address": "127.0.0.1:0"}}
        for section, keys in sections.items():
            self.config[section] = keys if isinstance(keys, list) else self.config.get(section, {}) | keys
        self.token = token
        self.arguments = arguments
        self.engine_http_address = None
        self.process = None
        self.channels = []

    def __getattr__(self, name):
        """What a test asks of the engine's daemon."""
        return getattr(self.daemon, name)

    def command(self):
        path = self.folder / "engine.yaml"
        path.write_text(json.dumps(self.config, indent=2))
        command = ["setpriv", "--pdeathsig", "KILL", PAGODA_ENGINE, "--connect", f"unix:{self.daemon.unix_socket}", "--serve", path]
        if self.token is not None:
            token_file = self.folder / "engine.token"
            token_file.touch(mode=0o600)
            token_file.write_text(self.token)
            command += ["--auth-token-file", token_file]
        return command + list(self.arguments)

    def start(self):
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(self.command(), stdout=log, stderr=log)
        deadline = time.monotonic() + START_SECONDS
        while not (ready := READY.search(self.log.read_text())):
            assert self.process.poll() is None, f"the engine ended at its start:\n{self.log.read_text()}"
            assert time.monotonic() < deadline, f"the engine is not ready:\n{self.log.read_text()}"
            time.sleep(0.01)
        self.engine_http_address = ready[3]
        self.channel = self.connect(self.token)
        return self

    def connect(self, token=None):
        self.channels.append(connect(f"unix:{self.unix_socket}", [("grpc.use_local_subchannel_pool", 1)]))
        return self.channels[-1] if token is None else authorized(self.channels[-1], token)

    # These methods are those of a daemon, with this process and its address.
    engine_http, engine_http_as, wait, terminate = Daemon.engine_http, Daemon.engine_http_as, Daemon.wait, Daemon.terminate

    def kill(self):
        self.process.kill()
        self.process.wait()

    def metric(self, name):
        status, text = self.engine_http("/metrics")
        assert status == 200
        return sample_of(text, name)

    def wait_until(self, condition, seconds=60):
        """Waits until `condition(engine)` holds."""
        deadline = time.monotonic() + seconds
        while not condition(self):
            assert time.monotonic() < deadline, f"the condition is not met in {seconds} s:\n{self.log.read_text()}"
            time.sleep(0.02)

    def stop(self):
        """Stops it as an operator would."""
        for channel in self.channels:
            channel.close()
        if self.process.poll() is not None:
            return  # The test has ended it.
        self.process.send_signal(signal.SIGTERM)
        status = self.wait(STOP_SECONDS)
        assert status == 0, f"exit status {status}:\n{self.log.read_text()}"

    def __enter__(self):
        return self.start()

    def __exit__(self, kind, *_):
        if kind is None:
            return self.stop()
        print(self.log.read_text())
        self.kill()
        return None
