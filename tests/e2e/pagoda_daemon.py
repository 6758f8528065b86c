"""A pagodad of the test's own, started and stopped like an operator would."""

import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import time
import urllib.error
import urllib.request

from google.protobuf import json_format
from pagoda_client import Client, authorized, connect
from pagoda.v1 import admin_pb2, admin_pb2_grpc

PAGODAD = pathlib.Path(os.environ["PAGODA_BIN"]).absolute() / "pagodad"
START_SECONDS = 60
CALL_SECONDS = 20
# A daemon that waits for nothing ends within this time. It is below drain_timeout, so a test
# notices a drain that waits without need.
QUIET_STOP_SECONDS = 15
DRAIN_TIMEOUT = "20s"
READY = re.compile(r"pagodad is ready: gRPC on \S+(?: and (?P<grpc>[^\s,;]+))?(?:, HTTP on (?P<http>[^\s,;]+))?(?:, probes on (?P<probe>[^\s,;]+))?"
                   r"(?:; engine: gRPC on [^\s,]+(?: and (?P<engine_grpc>[^\s,]+))?(?:, HTTP on (?P<engine_http>[^\s,]+))?)?\n")
# The program of the engine, and the name of its sessions.
ENGINE = "pagoda-engine"
# The daemon runs on this machine: no proxy is used.
HTTP = urllib.request.build_opener(urllib.request.ProxyHandler({}))

CACHE = {
    "name": "e2e",
    "tokens_per_block": 4,
    "kv_dtype": "float32",
    "primary": 64,
    "primary_memory": "host",
    "huge_pages": "off",  # The tests find shared memory by its name.
    "layers": {"count": 2, "num_kv_heads": 2, "head_dim": 8},
}


def get(address, path, token, headers):
    """(status code, body) of a GET request with a bearer token, or with headers."""
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    request = urllib.request.Request(f"http://{address}{path}", headers=headers)
    try:
        with HTTP.open(request, timeout=CALL_SECONDS) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def sample_of(text, name):
    """The value of a metric that has one sample, without labels."""
    (value,) = re.findall(rf"(?m)^{name} (\S+)$", text)
    return float(value)


def name_of(pid):
    """The name of a process's program; None if the process has ended."""
    try:
        return pathlib.Path(f"/proc/{pid}/comm").read_text().removesuffix("\n")
    except (FileNotFoundError, ProcessLookupError):
        return None


class Child:
    """A process that this process has not started. It stands for a subprocess.Popen where a test
    only observes it."""

    def __init__(self, pid):
        self.pid = pid

    def poll(self):
        """None while it runs."""
        try:
            state = pathlib.Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return -1
        return -1 if state in "ZX" else None


class Daemon:
    """A daemon with its configuration, socket and log in `folder`. Keyword arguments replace keys
    of a section, or a list.

    It takes free TCP ports; the addresses are known once it is ready. With an `operator_token` it
    has operators, and this object's own calls use that token. `secrets`: the text of files for
    write_secret.

    With engine.model_dir it starts an engine. The engine serves gRPC at a Unix socket in `folder`,
    and HTTP if the daemon does, unless the section says otherwise."""

    def __init__(self, folder, operator_token=None, secrets=None, **sections):
        self.folder = folder
        self.operator_token = operator_token
        self.grpc_address = None
        self.http_address = None
        self.probe_address = None
        self.engine_grpc_address = None
        self.engine_http_address = None
        self._engine_channel = None
        self.unix_socket = folder / "pagodad.sock"
        self.log = folder / "pagodad.log"
        self.process = None
        self.channels = []
        self.config = {
            "cache": CACHE | {"name": f"e2e-{os.getpid()}-{folder.name}"},
            "server": {"unix_socket": str(self.unix_socket), "grpc_address": "127.0.0.1:0",
                       "http_address": "", "drain_timeout": DRAIN_TIMEOUT},
            "sessions": {"default_lease": "30s", "max_lease": "60s"},
            "events": {"max_events": 10000, "progress_interval": "200ms", "flush_interval": "1ms"},
        }
        for name, text in (secrets or {}).items():
            self.write_secret(name, text)
        if operator_token is not None:
            self.config["operators"] = {"tokens_file": self.write_secret("operators.tokens", operator_token)}
        for section, keys in sections.items():
            self.config[section] = keys if isinstance(keys, list) else self.config.get(section, {}) | keys
        if "tiers" in self.config["cache"]:
            for short_form in ("primary", "primary_memory"):
                del self.config["cache"][short_form]

    def write_secret(self, name, text):
        """Writes a file in the daemon's folder that only its owner can read, by one rename. Returns
        its name."""
        fresh = self.folder / f"{name}.new"
        fresh.touch(mode=0o600)
        fresh.write_text(f"{text}\n")
        fresh.rename(self.folder / name)
        return name

    @property
    def has_engine(self):
        return bool(self.config.get("engine", {}).get("model_dir"))

    def choose_the_engines_addresses(self):
        """Writes the addresses that the section `engine` lacks."""
        keys = self.config["engine"] = dict(self.config["engine"])
        keys.setdefault("unix_socket", str(self.folder / "engine.sock"))
        keys.setdefault("grpc_address", "")
        keys.setdefault("http_address", "127.0.0.1:0" if self.config["server"].get("http_address") else "")

    def write_config(self):
        if self.has_engine:
            self.choose_the_engines_addresses()
        path = self.folder / "pagodad.yaml"
        path.write_text(json.dumps(self.config, indent=2))  # JSON is YAML.
        return path

    def command(self):
        return ["setpriv", "--pdeathsig", "KILL", PAGODAD, "--config", self.write_config()]

    def spawn(self):
        """Starts the process without waiting for it. If this process is killed, the kernel kills
        the daemon too."""
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(self.command(), stdout=log, stderr=log)
        return self

    def start(self):
        """Starts the process and waits until it says that it is ready."""
        self.spawn()
        self._engine_channel = None
        try:
            ready = self.wait_until_ready()
        except BaseException:
            self.kill()
            raise
        self.grpc_address, self.http_address, self.probe_address = ready["grpc"], ready["http"], ready["probe"]
        self.engine_grpc_address, self.engine_http_address = ready["engine_grpc"], ready["engine_http"]
        self.channel = self.connect() if self.operator_token is None else authorized(self.connect(), self.operator_token)
        self.admin = admin_pb2_grpc.AdminServiceStub(self.channel)
        return self

    def wait_until_ready(self):
        deadline = time.monotonic() + START_SECONDS
        while not (ready := READY.search(self.log.read_text())):
            assert self.process.poll() is None, f"the daemon ended at its start:\n{self.log.read_text()}"
            assert time.monotonic() < deadline, f"the daemon is not ready:\n{self.log.read_text()}"
            time.sleep(0.01)
        return ready

    def run_to_its_end(self):
        """For a daemon that cannot start: its exit status."""
        self.spawn()
        return self.wait(START_SECONDS)

    def connect(self, address=None, options=()):
        """A new connection, over the Unix socket unless an address is given."""
        options = [("grpc.use_local_subchannel_pool", 1), *options]
        self.channels.append(connect(address or f"unix:{self.unix_socket}", options))
        return self.channels[-1]

    def connect_engine(self, token=None, options=()):
        """A new connection to the engine's Unix socket. The token, if there is one, is in each
        call."""
        channel = self.connect(f"unix:{self.config['engine']['unix_socket']}", options)
        return channel if token is None else authorized(channel, token)

    @property
    def engine_channel(self):
        """A connection to the engine, with the operator's token if there is one."""
        if self._engine_channel is None:
            self._engine_channel = self.connect_engine(self.operator_token)
        return self._engine_channel

    def engine_pids(self):
        """The processes of the engine that the daemon has started: one, or none while the daemon
        pauses before it starts the next one."""
        pids = []
        for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # The process has ended meanwhile.
                if int(stat.read_text().rsplit(")", 1)[1].split()[1]) == self.process.pid:
                    pids.append(int(stat.parent.name))
        return [pid for pid in pids if Child(pid).poll() is None and name_of(pid) == ENGINE]

    def engine_pid(self):
        """The process of the engine, which must run."""
        (pid,) = self.engine_pids()
        return pid

    def engine_process(self):
        return Child(self.engine_pid())

    def status(self):
        return self.admin.GetStatus(admin_pb2.GetStatusRequest(), timeout=CALL_SECONDS)

    def primary(self, status=None):
        """The blocks of the only window's primary tier, by state, now or in a status. Checks that
        each slot counts once."""
        tier = (status or self.status()).windows[0].tiers[0]
        counted = (tier.free_blocks + tier.cached_blocks + tier.active_blocks + tier.pinned_blocks +
                   tier.in_flight_blocks)
        assert counted == tier.capacity_blocks, tier
        return tier

    def wait_until(self, condition, seconds=60):
        """Waits until `condition(daemon)` holds."""
        deadline = time.monotonic() + seconds
        while not condition(self):
            assert time.monotonic() < deadline, f"the condition is not met in {seconds} s; status:\n{self.status()}"
            time.sleep(0.02)

    def retired_slots(self):
        """The number of slots that the disk refused to write. They count as in flight until the
        next start."""
        return 0

    def settle(self):
        """Waits until no copy is under way. Returns the status that shows it: the daemon can begin
        the next one by itself."""
        statuses = []

        def is_settled(daemon):
            statuses.append(daemon.status())
            in_flight = sum(tier.in_flight_blocks for window in statuses[-1].windows for tier in window.tiers)
            return in_flight == daemon.retired_slots()

        self.wait_until(is_settled)
        return statuses[-1]

    def metrics(self):
        """/metrics without the label of the cache, for a daemon with one cache."""
        text = self.http("/metrics")[1]
        return re.sub(r'(?m)^(?!pagoda_cache_info)(\w+)\{cache="[^"]*"(,?)', lambda m: m[1] + "{", text).replace("{} ", " ")

    def http(self, path):
        """(status code, body) of a GET request."""
        return self.http_as(path)

    def http_as(self, path, token=None, **headers):
        """The same with a bearer token, or with headers."""
        return get(self.http_address, path, token, headers)

    def told(self, path, answer, token=None, **headers):
        """The answer of /api/v1/PATH, read into the message `answer`. The message has every field
        of the JSON, else this fails."""
        code, body = self.http_as(f"/api/v1/{path}", token, **headers)
        assert code == 200, body
        return json_format.Parse(body, answer)

    def engine_http(self, path):
        """(status code, body) of a GET request to the engine."""
        return self.engine_http_as(path)

    def engine_http_as(self, path, token=None, **headers):
        """The same with a bearer token, or with headers."""
        return get(self.engine_http_address, path, token, headers)

    def engine_metric(self, name):
        """pagoda_engine_NAME as the engine itself tells it. The daemon's numbers are those of the
        engine's last report."""
        status, text = self.engine_http_as("/metrics", self.operator_token)
        assert status == 200, text
        return sample_of(text, f"pagoda_engine_{name}")

    def wait(self, seconds):
        """The exit status; fails, and kills the process, where it does not end within `seconds`."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the daemon did not end in {seconds} s:\n{self.log.read_text()}") from None
        finally:
            self.kill()

    def kill(self):
        """kill -9: no drain, no clean-up. Nothing where the process has ended."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def terminate(self, within_seconds=QUIET_STOP_SECONDS):
        """SIGTERM; returns the exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.wait(within_seconds)

    def check_nothing_leaked(self):
        """Closes this process's sessions, waits until other sessions have ended, and looks for
        blocks without an owner."""
        Client.close_all()
        self.wait_until(Daemon.has_only_its_own_sessions)
        tier = self.primary(self.settle())
        assert tier.active_blocks == 0 and tier.in_flight_blocks == 0, f"blocks without an owner: {tier}"

    def has_only_its_own_sessions(self):
        """Whether each session is the daemon's own. One is for the exchange of blocks with other
        machines. Its engine has one of its own, and one for each tenant that has asked it. Nothing
        is left in them."""
        status = self.status()
        of_its_own = int(status.HasField("exchange") and not status.exchange.unavailable)
        if status.HasField("engine"):
            sessions = [session for session in self.sessions() if session.client_name == ENGINE]
            tenants = [session.tenant for session in sessions]
            if "" not in tenants or len(set(tenants)) < len(tenants) or any(session.sequences for session in sessions):
                return False
            of_its_own += len(sessions)
        return status.sessions == of_its_own

    def sessions(self):
        return self.admin.ListSessions(admin_pb2.ListSessionsRequest(page_size=1000), timeout=CALL_SECONDS).sessions

    def stop(self):
        """Checks that nothing leaked, and that the daemon then ends promptly after SIGTERM, with
        exit status 0."""
        if self.process is None:
            return
        try:
            assert self.process.poll() is None, f"the daemon has ended already:\n{self.log.read_text()}"
            self.check_nothing_leaked()
            for channel in self.channels:
                channel.close()
            engines = [Child(pid) for pid in self.engine_pids()]
            assert self.terminate() == 0, self.log.read_text()
            assert not self.unix_socket.exists()
            assert all(engine.poll() is not None for engine in engines), "the engine outlives the daemon"
            assert not self.has_engine or not pathlib.Path(self.config["engine"]["unix_socket"]).exists()
        finally:
            self.kill()

    def __enter__(self):
        return self.start()

    def __exit__(self, *error):
        if error[0] is None:
            self.stop()
        else:
            print(self.log.read_text())
            self.kill()
