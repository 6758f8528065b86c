"""deploy/proxy/haproxy.cfg before a daemon that has its Unix socket alone: calls and streams pass with their tokens, and what bounds it holds."""

import os
import pathlib
import shutil
import socket
import ssl
import subprocess
import time

import grpc
import pytest
from certificates import Authority
from hostile_wire import CONTINUATION, HEADERS, PREFACE, SETTINGS, call_headers, frame
from pagoda_client import Client, authorized, call_status, reason_of
from pagoda_daemon import CALL_SECONDS
from pagoda.v1 import admin_pb2, admin_pb2_grpc, cache_pb2, cache_pb2_grpc, events_pb2, events_pb2_grpc
from test_header_flood import cpu_seconds, flood, integer

CONFIG = pathlib.Path(__file__).parents[2] / "deploy" / "proxy" / "haproxy.cfg"
HAPROXY = shutil.which("haproxy", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
OPERATOR, ALICE = "token-of-the-operator-0123456789", "token-of-alice-0123456789"
FLOODS = 4
MAX_CPU_SECONDS = 0.5

pytestmark = pytest.mark.skipif(HAPROXY is None, reason="haproxy is not installed (deploy/setup.sh installs it)")


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Proxy:
    def __init__(self, daemon, folder):
        self.authority = Authority(folder)
        certificate, key = self.authority.sign("proxy", "IP:127.0.0.1", "DNS:localhost")
        both = folder / "proxy.pem"
        both.write_bytes(certificate.read_bytes() + key.read_bytes())
        self.port = free_port()
        self.daemon = daemon
        self.process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", HAPROXY, "-db", "-f", CONFIG],
            env=os.environ | {"PAGODA_PROXY_BIND": f"127.0.0.1:{self.port}", "PAGODA_PROXY_CERT": str(both),
                              "PAGODA_SOCKET": str(daemon.unix_socket)})
        deadline = time.monotonic() + CALL_SECONDS
        while socket.socket().connect_ex(("127.0.0.1", self.port)) != 0:
            assert self.process.poll() is None and time.monotonic() < deadline, "the proxy does not listen"
            time.sleep(0.05)

    def channel(self, token=None):
        credentials = grpc.ssl_channel_credentials(self.authority.certificate.read_bytes())
        self.daemon.channels.append(grpc.secure_channel(f"127.0.0.1:{self.port}", credentials,
                                                        options=[("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0)]))
        return self.daemon.channels[-1] if token is None else authorized(self.daemon.channels[-1], token)

    def connect(self):
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_alpn_protocols(["h2"])
        return context.wrap_socket(socket.create_connection(("127.0.0.1", self.port), CALL_SECONDS))


@pytest.fixture
def proxy(start_daemon, tmp_path_factory):
    daemon = start_daemon(operator_token=OPERATOR, secrets={"alice.tokens": ALICE}, server={"grpc_address": "", "http_address": "127.0.0.1:0"},
                          tenants=[{"name": "alice", "tokens_file": "alice.tokens"}])
    running = Proxy(daemon, tmp_path_factory.mktemp("proxy"))
    yield running
    running.process.terminate()
    running.process.wait(CALL_SECONDS)


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
                    time.sleep(0.01)  # One at a time: both directions stay open.

        for response in stub.Session(requests(), timeout=CALL_SECONDS):
            answered.append(response.batch_id)
        assert answered == [1, 2, 3, 4, 5]
        # A large answer to a large question.
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
    assert refused_headers(daemon) == 0, "the daemon saw none of it"
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
