"""Every key of the configuration that is an address works with IPv6, and an endpoint in another
form is refused with the form that is meant."""

import os
import pathlib
import re
import socket
import subprocess

import pagoda
import pytest
import yaml
from free_ports import free_port
from pagoda_client import connect
from pagoda_daemon import HTTP, PAGODAD, Daemon
from pagodactl import PAGODACTL
from pagoda.v1 import admin_pb2, admin_pb2_grpc, engine_pb2, engine_pb2_grpc

SECONDS = 20
# A new key whose name says that it is an address needs a row here, and a check below.
GOLDEN = pathlib.Path(os.environ["PAGODA_GOLDEN"]).resolve() / "qwen3_tiny"
KEYS = {"server.grpc_address", "server.http_address", "server.probe_address", "peers.address", "peers.advertised", "peers.sources",
        "store.servers", "events.zmq.endpoint", "events.zmq.replay_endpoint", "engine.grpc_address", "engine.http_address"}
ADDRESS = re.compile(r"(address|endpoint|servers|sources|advertised|host_port)$")


def has_ipv6():
    try:
        with socket.socket(socket.AF_INET6) as one:
            one.bind(("::1", 0))
        return True
    except OSError:
        return False


needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6 loopback")


def flat(mapping, prefix=""):
    for name, value in mapping.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def test_the_list_of_addresses_is_complete():
    printed = subprocess.run([PAGODAD, "--print-config"], capture_output=True, text=True, check=True).stdout
    assert {key for key in flat(yaml.safe_load(printed)) if ADDRESS.search(key)} == KEYS


def answer(address, question=b""):
    """The first bytes that the other end of a TCP connection says."""
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host.strip("[]"), int(port)), SECONDS) as connection:
        connection.sendall(question)
        return connection.recv(64)


@needs_ipv6
def test_each_address_can_be_ipv6(tmp_path):
    peer, publisher, replay = (f"[::1]:{free_port('::1')}" for _ in range(3))
    # A store that is only connected to.
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as store:
        store.settimeout(SECONDS)
        listening = Daemon(
            tmp_path,
            server={name: "[::1]:0" for name in ("grpc_address", "http_address", "probe_address")},
            peers={"address": peer, "advertised": peer, "sources": ["[::1]:*"]},
            store={"servers": [f"[::1]:{store.getsockname()[1]}"]},
            engine={"model_dir": str(GOLDEN), "grpc_address": "[::1]:0", "http_address": "[::1]:0"}, cache={"layers": None, "primary": 256},
            events={"zmq": {"endpoint": f"tcp://{publisher}", "replay_endpoint": f"tcp://{replay}", "mode": "listen"}})
        with listening as daemon:
            assert daemon.grpc_address.startswith("[::1]:") and daemon.http_address.startswith("[::1]:")
            channel = connect(daemon.grpc_address)
            assert admin_pb2_grpc.AdminServiceStub(channel).GetStatus(admin_pb2.GetStatusRequest(), timeout=SECONDS).epoch
            channel.close()
            for path in ("/", "/metrics", "/api/v1/status", "/readyz"):
                assert daemon.http(path)[0] == 200
            with HTTP.open(f"http://{daemon.probe_address}/readyz", timeout=SECONDS) as reply:
                assert reply.status == 200
            assert daemon.engine_grpc_address.startswith("[::1]:") and daemon.engine_http_address.startswith("[::1]:")
            assert daemon.engine_http("/readyz")[0] == 200
            channel = connect(daemon.engine_grpc_address)
            request = engine_pb2.GenerateRequest(prompt_tokens=[1, 2], max_new_tokens=2)
            assert sum(len(answer.tokens) for answer in engine_pb2_grpc.EngineServiceStub(channel).Generate(request, timeout=SECONDS)) == 2
            channel.close()
            assert answer(peer, b"PING\r\n")[:1] in b"+-"
            assert answer(publisher)[:1] == answer(replay)[:1] == b"\xff"  # ZMQ's greeting.
            connection, address = store.accept()
            connection.close()
            assert address[0] == "::1"


def test_the_http_address_is_no_endpoint(tmp_path):
    with Daemon(tmp_path, server={"http_address": "127.0.0.1:0"}) as daemon:
        command = [PAGODACTL, "--endpoint", daemon.http_address, "status"]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert ended.returncode == 3 and "is no gRPC server" in ended.stderr and "server.grpc_address" in ended.stderr


MISTAKES = [("127.0.0.1", "it has no port"), ("/run/pagodad.sock", "write unix:/run/pagodad.sock"),
            ("http://127.0.0.1:7071", "begins with http://"), ("::1:7070", "an IPv6 address needs brackets")]


@pytest.mark.parametrize(("endpoint", "meant"), MISTAKES)
def test_an_endpoint_in_another_form_is_refused_with_the_form_that_is_meant(endpoint, meant):
    ended = subprocess.run([PAGODACTL, "--endpoint", endpoint, "status"], capture_output=True, text=True, timeout=SECONDS, check=False)
    assert ended.returncode != 0 and meant in ended.stderr and endpoint in ended.stderr
    with pytest.raises(ValueError, match=re.escape(meant)) as refused:
        pagoda.connect(endpoint)
    assert endpoint in str(refused.value)
