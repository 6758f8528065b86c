"""deploy/proxy/haproxy.cfg before a daemon that has only its Unix socket. Calls and streams pass
with their tokens, and the proxy's bounds hold."""

import contextlib
import grp
import os
import pathlib
import pwd
import re
import shutil
import socket
import ssl
import subprocess
import tempfile
import threading
import time

import grpc
import pytest
from certificates import Authority
from free_ports import free_port
from hostile_wire import CONTINUATION, HEADERS, PREFACE, SETTINGS, call_headers, frame
from pagoda_client import Client, authorized, call_status, reason_of
from pagoda_daemon import CALL_SECONDS, Daemon
from pagoda.v1 import admin_pb2, admin_pb2_grpc, cache_pb2, cache_pb2_grpc, events_pb2, events_pb2_grpc
from test_header_flood import cpu_seconds, flood, integer

DEPLOY = pathlib.Path(__file__).parents[3] / "deploy"
CONFIG = DEPLOY / "proxy" / "haproxy.cfg"
HAPROXY = shutil.which("haproxy", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
OPERATOR, ALICE = "token-of-the-operator-0123456789", "token-of-alice-0123456789"
FLOODS = 4
MAX_CPU_SECONDS = 0.5
# `timeout client` at the edge, and that time with `client-fin` and a margin for a busy machine.
HANDSHAKE_SECONDS, GIVEN_UP_SECONDS = 10, 40

pytestmark = pytest.mark.skipif(HAPROXY is None, reason="haproxy is not installed (deploy/setup.sh installs it)")


class Proxy:
    """HAProxy before the daemon, as this process's user and group unless others are named."""

    def __init__(self, daemon, folder, user=pwd.getpwuid(os.getuid()).pw_name, group=grp.getgrgid(os.getgid()).gr_name):
        self.authority = Authority(folder)
        certificate, key = self.authority.sign("proxy", "IP:127.0.0.1", "DNS:localhost")
        both = folder / "proxy.pem"
        both.write_bytes(certificate.read_bytes() + key.read_bytes())
        self.port = free_port()
        self.daemon = daemon
        self.process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", HAPROXY, "-db", "-f", CONFIG],
            env=os.environ | {"PAGODA_PROXY_BIND": f"127.0.0.1:{self.port}", "PAGODA_PROXY_CERT": str(both),
                              "PAGODA_SOCKET": str(daemon.unix_socket), "PAGODA_PROXY_INNER": str(folder / "inner.sock"),
                              "PAGODA_PROXY_USER": user, "PAGODA_PROXY_GROUP": group})
        deadline = time.monotonic() + CALL_SECONDS
        while socket.socket().connect_ex(("127.0.0.1", self.port)) != 0:
            assert self.process.poll() is None and time.monotonic() < deadline, "the proxy does not listen"
            time.sleep(0.05)

    def channel(self, token=None):
        credentials = grpc.ssl_channel_credentials(self.authority.certificate.read_bytes())
        self.daemon.channels.append(grpc.secure_channel(f"127.0.0.1:{self.port}", credentials,
                                                        options=[("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0)]))
        return self.daemon.channels[-1] if token is None else authorized(self.daemon.channels[-1], token)

    def files(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def stop(self):
        self.process.terminate()
        self.process.wait(CALL_SECONDS)

    def connect(self):
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_alpn_protocols(["h2"])
        return context.wrap_socket(socket.create_connection(("127.0.0.1", self.port), CALL_SECONDS))


SECTIONS = {"operator_token": OPERATOR, "secrets": {"alice.tokens": ALICE}, "server": {"grpc_address": "", "http_address": "127.0.0.1:0"},
            "tenants": [{"name": "alice", "tokens_file": "alice.tokens"}]}


@pytest.fixture
def proxy(start_daemon, tmp_path_factory):
    running = Proxy(start_daemon(**SECTIONS), tmp_path_factory.mktemp("proxy"))
    yield running
    running.stop()


def test_calls_and_streams_pass_with_their_tokens(proxy):
    watch = events_pb2_grpc.EventServiceStub(proxy.channel(ALICE)).Watch(events_pb2.WatchRequest())
    next(watch)
    with Client(proxy.channel(ALICE)) as client:
        assert client.opened.tenant == "alice"
        client.cache(1, range(9))
        while not any(event.HasField("stored") for event in next(watch).events):
            pass
        stub = cache_pb2_grpc.CacheServiceStub(proxy.channel(ALICE))
        answered = []

        def requests():
            for number in range(1, 6):
                yield cache_pb2.SessionRequest(session=client.session, batch_id=number)
                deadline = time.monotonic() + CALL_SECONDS
                while len(answered) < number and time.monotonic() < deadline:
                    time.sleep(0.01)  # Sends one at a time: both directions stay open.

        for response in stub.Session(requests(), timeout=CALL_SECONDS):
            answered.append(response.batch_id)
        assert answered == [1, 2, 3, 4, 5]
        # A large request with a large answer.
        assert client.match(range(500_000)) is not None
    watch.cancel()


def test_errors_keep_their_reasons(proxy):
    with pytest.raises(grpc.RpcError) as refusal:
        Client(proxy.channel("token-of-a-stranger-0123456789"))
    assert reason_of(call_status(refusal.value)) == "UNAUTHENTICATED"
    with pytest.raises(grpc.RpcError) as refusal:
        admin_pb2_grpc.AdminServiceStub(proxy.channel(ALICE)).GetStatus(admin_pb2.GetStatusRequest(), timeout=CALL_SECONDS)
    assert reason_of(call_status(refusal.value)) == "PERMISSION_DENIED"


def test_health_passes_and_other_paths_do_not(proxy):
    assert proxy.channel().unary_unary("/grpc.health.v1.Health/Check")(b"\x0a\x00", timeout=CALL_SECONDS) == b"\x08\x01"
    with pytest.raises(grpc.RpcError):
        proxy.channel().unary_unary("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo")(b"", timeout=CALL_SECONDS)


def refused_headers(daemon):
    (line,) = (line for line in daemon.http("/metrics")[1].splitlines() if line.startswith("pagoda_grpc_refused_headers_total "))
    return int(float(line.split()[1]))


@pytest.mark.parametrize("frame_bytes", [16384, 256])
def test_headers_that_do_not_end_stop_at_the_proxy(proxy, frame_bytes):
    daemon = proxy.daemon
    before = cpu_seconds(daemon.process)
    for _ in range(FLOODS):
        with proxy.connect() as connection:
            try:
                connection.sendall(flood(frame_bytes))
                while connection.recv(65536):
                    pass
            except (OSError, ssl.SSLError) as error:
                assert not isinstance(error, TimeoutError), "the connection stays open"
    assert cpu_seconds(daemon.process) - before < MAX_CPU_SECONDS
    assert refused_headers(daemon) == 0, "no header reached the daemon"
    with Client(proxy.channel(ALICE)) as client:
        assert client.allocate(1)


def test_headers_that_stand_still_are_given_up(proxy):
    """timeout http-request: the daemon never hears of them."""
    begin = call_headers("/pagoda.v1.AdminService/GetStatus") + b"\0\1x" + integer(1000)
    with proxy.connect() as connection:
        connection.settimeout(60)
        connection.sendall(PREFACE + frame(SETTINGS) + frame(HEADERS, 0, 1, begin) + frame(CONTINUATION, 0, 1, b"y"))
        start = time.monotonic()
        while connection.recv(65536):
            pass
    assert time.monotonic() - start < 45


def client_hello():
    """The first bytes of a handshake."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="localhost").do_handshake()
    return outgoing.read()


def test_handshakes_that_do_not_end_are_given_up(proxy):
    """A client that is silent from the start, or stops in its ClientHello, after it, after the
    handshake or in HTTP/2's preface, keeps no connection of the proxy."""
    hello = client_hello()
    with Client(proxy.channel(ALICE)):
        before = proxy.files()
        with contextlib.ExitStack() as held:
            connections = []
            for said in (b"", hello[:len(hello) // 2], hello):
                connections.append(held.enter_context(socket.create_connection(("127.0.0.1", proxy.port), CALL_SECONDS)))
                connections[-1].sendall(said)
            for said in (b"", PREFACE[:12], PREFACE + frame(SETTINGS)):
                connections.append(held.enter_context(proxy.connect()))
                connections[-1].sendall(said)
            deadline = time.monotonic() + GIVEN_UP_SECONDS
            while proxy.files() < before + len(connections):
                assert time.monotonic() < deadline, "the connections were not accepted"
                time.sleep(0.01)
            for number, connection in enumerate(connections):
                connection.settimeout(max(1, deadline - time.monotonic()))
                try:
                    while connection.recv(65536):
                        pass
                except TimeoutError:
                    pytest.fail(f"connection {number} stays open")
                except OSError:
                    pass  # The connection is closed, with or without an error.
            # The proxy closes its end even if the other side stays open.
            while proxy.files() > before:
                assert time.monotonic() < deadline, f"{proxy.files() - before} files are held"
                time.sleep(0.1)


def test_a_silent_session_is_not_given_up(proxy):
    """A session stream may say nothing for longer than a handshake may take."""
    with Client(proxy.channel(ALICE)) as client:
        silence = threading.Event()

        def requests():
            yield cache_pb2.SessionRequest(session=client.session, batch_id=1)
            silence.wait()
            yield cache_pb2.SessionRequest(session=client.session, batch_id=2)

        answers = cache_pb2_grpc.CacheServiceStub(proxy.channel(ALICE)).Session(requests(), timeout=CALL_SECONDS + 2 * HANDSHAKE_SECONDS)
        assert next(answers).batch_id == 1
        threading.Timer(1.5 * HANDSHAKE_SECONDS, silence.set).start()
        assert [answer.batch_id for answer in answers] == [2]


@pytest.mark.skipif(os.getuid() != 0, reason="only root can switch to another user")
@pytest.mark.skipif(not os.stat("/").st_mode & 0o001, reason="no other user can enter the root folder of this system")
def test_the_proxy_serves_as_its_own_user(tmp_path_factory):
    """Root starts it; the daemon's group alone lets it reach the socket."""
    user, group = pwd.getpwnam("haproxy"), grp.getgrnam("daemon")
    assert group.gr_gid != user.pw_gid
    # Only root can enter pytest's folders.
    with tempfile.TemporaryDirectory() as text, Daemon(pathlib.Path(text), **SECTIONS) as daemon:
        for path in (daemon.folder, daemon.unix_socket):
            shutil.chown(path, group=group.gr_gid)
        daemon.folder.chmod(0o750)
        folder = pathlib.Path(tempfile.mkdtemp(dir=daemon.folder))
        shutil.chown(folder, user=user.pw_uid)
        proxy = Proxy(daemon, folder, user.pw_name, group.gr_name)
        try:
            with Client(proxy.channel(ALICE)) as client:
                assert client.opened.tenant == "alice"
            status = pathlib.Path(f"/proc/{proxy.process.pid}/status").read_text()
            ids = {name: set(map(int, re.search(rf"^{name}:(.*)$", status, re.MULTILINE)[1].split())) for name in ("Uid", "Gid", "Groups")}
            assert ids["Uid"] == {user.pw_uid} and ids["Gid"] == {group.gr_gid} and ids["Groups"] <= {group.gr_gid}, ids
            assert (folder / "inner.sock").stat().st_mode & 0o777 == 0o600
        finally:
            proxy.stop()


def test_the_recipe_never_shows_the_key(tmp_path):
    """The README's commands write the key into a file that only its owner can read, from its first
    byte on."""
    (command,) = (line for line in (DEPLOY / "README.md").read_text().splitlines() if "cache-7.key" in line)
    (tmp_path / "cat").write_text("#!/bin/sh\nstat -L -c %a /proc/$$/fd/1\n")
    (tmp_path / "cat").chmod(0o755)
    subprocess.run(["sh", "-c", "umask 022; " + command.replace("/etc/haproxy/", f"{tmp_path}/")], check=True,
                   env={"PATH": f"{tmp_path}:{os.environ['PATH']}"})
    assert (tmp_path / "pagoda.pem").read_text() == "600\n"
