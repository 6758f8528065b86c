"""The daemon as an operator meets it: configuration, ports, health, metrics, signals."""

import ctypes
import os
import pathlib
import re
import struct
import subprocess
import threading

import grpc
import pytest
import yaml
from pagoda_client import Client
from pagoda_daemon import CALL_SECONDS, Daemon, PAGODAD
from pagoda.v1 import cache_pb2, events_pb2, events_pb2_grpc

README = pathlib.Path(__file__).parents[3] / "server" / "README.md"
SERVICES = {"the daemon": ["pagoda.v1.CacheService", "pagoda.v1.EventService", "pagoda.v1.AdminService"],
            "the engine": ["pagoda.v1.EngineService"]}
GOLDEN = pathlib.Path(os.environ["PAGODA_GOLDEN"]) / "qwen3_tiny"
WITH_ENGINE = {"engine": {"model_dir": str(GOLDEN)}, "cache": {"layers": None}}

GOOD_CONFIG = """\
cache:
  name: e2e-config
  tokens_per_block: 4
  kv_dtype: float32
  primary: 64
  layers: {count: 2, num_kv_heads: 2, head_dim: 8}
server:
  drain_timeout: 3s
"""


def run_pagodad(config):
    return subprocess.run([PAGODAD, "--config", config], capture_output=True, text=True, timeout=60, check=False)


def test_a_cache_of_a_model_without_a_name_is_a_warning(start_daemon):
    said = "warning cache.model has no name"
    assert said in start_daemon().log.read_text()
    assert said not in start_daemon(cache={"model": {"name": "org/tiny"}}).log.read_text()


def key_names(section):
    """The keys of a section that pagodad prints, and of its subsections, without the elements of
    empty lists."""
    for key, value in section.items():
        yield key
        yield from key_names(value) if isinstance(value, dict) else ()


def test_the_manual_names_every_key(tmp_path):
    """The keys in server/CONFIGURATION.md. `tenants` is a list; if empty, it prints no elements."""
    config = tmp_path / "config.yaml"

    def printed_of(text):
        config.write_text(text)
        return yaml.safe_load(subprocess.run([PAGODAD, "--config", config, "--print-config"], capture_output=True, text=True,
                                             check=True).stdout)

    printed = printed_of("{}")
    # A cache has its tiers as a list or in their short forms.
    as_list = printed_of("cache: {model: {name: m}, tiers: [{name: near, size: 64}, {medium: disk, size: 64, path: /p}]}")["cache"]
    list_keys = set(key_names(as_list)) | {key for tier in as_list["tiers"] for key in tier}
    # Layers have heads, or bytes.
    list_keys |= set(key_names(printed_of("cache: {layers: {kind: opaque, bytes_per_block: 8}}")["cache"]))
    adapter_keys = set(key_names(printed_of("engine: {model_dir: /m, adapters: [{name: a, path: /p}]}")["engine"]))
    page = (README.parent / "CONFIGURATION.md").read_text()
    listed = page.partition("\n## Sections and keys\n")[2].partition("\nNotes:\n")[0]
    rows = re.findall(r"^\* `(\w+)`(?: \(a list\))?: (`.*(?:\n  .*)*)$", listed, re.MULTILINE)
    told = {section: set(re.findall(r"`(\w+)`", keys)) for section, keys in rows}
    assert told.keys() == printed.keys()
    for section in printed.keys() - {"tenants"}:
        keys = set(key_names(printed[section])) | {"cache": list_keys, "engine": adapter_keys}.get(section, set())
        assert told[section] == keys, section


def test_the_readme_names_files_that_are_there():
    """In its table of rooms, each name in a row is a header, a source or a folder of the row's
    folder."""
    table = README.read_text().partition("| folder | what |")[2].partition("\n\n")[0]
    rows = [row.split("|")[1:3] for row in table.splitlines() if "|" in row and "---" not in row]
    names = [(folder.strip(" `/"), name) for folder, what in rows for name in re.findall(r"`(\w[\w/]*)`", what)]
    assert len(names) > 30

    def is_there(folder, name):
        root = README.parent if folder == "(here)" else README.parent / folder
        return any((base / f"{name}{end}").exists() for base in (root, README.parent.parent) for end in ("", ".h", ".cc"))

    assert [(folder, name) for folder, name in names if not is_there(folder, name)] == []


@pytest.mark.parametrize("line, wrong, named", [
    (3, "  tokens_per_blok: 4", "tokens_per_blok"),
    (7, "sever:", "sever"),
])
def test_a_bad_configuration_is_refused_with_its_line(tmp_path, line, wrong, named):
    lines = GOOD_CONFIG.splitlines()
    lines[line - 1] = wrong
    config = tmp_path / "bad.yaml"
    config.write_text("\n".join(lines) + "\n")
    ended = run_pagodad(config)
    assert ended.returncode == 1, ended
    assert f"bad.yaml:{line}" in ended.stderr and named in ended.stderr


@pytest.mark.parametrize("key", ["kv: basic", "basic_sequences: 4", "basic_sequence_tokens: 64"])
def test_a_key_of_the_engine_that_has_gone_is_refused(tmp_path, key):
    config = tmp_path / "old.yaml"
    config.write_text(f"{GOOD_CONFIG}engine:\n  {key}\n")
    ended = run_pagodad(config)
    assert ended.returncode == 1 and "old.yaml:10" in ended.stderr and key.partition(":")[0] in ended.stderr, ended


def test_the_engines_addresses_are_its_own(tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text("engine: {model_dir: /m}\n")
    printed = subprocess.run([PAGODAD, "--config", config, "--print-config"], capture_output=True, text=True, check=True).stdout
    engine = yaml.safe_load(printed)["engine"]
    assert engine["unix_socket"].endswith("/pagoda.sock.engine")
    assert (engine["grpc_address"], engine["http_address"]) == ("127.0.0.1:7074", "127.0.0.1:7076")


@pytest.mark.parametrize("server, engine, named", [
    ({"unix_socket": ""}, {}, "server.unix_socket"),
    ({"map_socket": ""}, {}, "server.map_socket"),
    ({}, {"unix_socket": "", "grpc_address": ""}, "engine.grpc_address"),
    ({}, {"grpc_address": "0.0.0.0:0"}, "engine.grpc_address 0.0.0.0:0 would serve other machines without TLS"),
    ({}, {"http_address": "0.0.0.0:0"}, "engine.http_address 0.0.0.0:0 would serve other machines without TLS"),
])
def test_an_engine_that_could_not_be_reached_or_is_open_to_all_is_refused(tmp_path, server, engine, named):
    daemon = Daemon(tmp_path, server=server, engine=WITH_ENGINE["engine"] | engine, cache=WITH_ENGINE["cache"])
    assert daemon.run_to_its_end() == 1
    assert named in daemon.log.read_text()


def test_both_addresses_serve_the_same_cache(daemon):
    with Client(daemon.channel) as over_socket, Client(daemon.connect(daemon.grpc_address)) as over_tcp:
        over_socket.cache(1, range(9))
        assert over_tcp.match(range(9)).matched_tokens == 8
        assert over_tcp.opened.epoch == over_socket.opened.epoch


# gRPC's health service, as bytes. The request is {1: service name}. The answer is {1: status}, 1
# for serving and 2 for not serving.
def health(channel, service):
    check = channel.unary_unary("/grpc.health.v1.Health/Check")
    return check(b"\x0a" + bytes([len(service)]) + service.encode(), timeout=CALL_SECONDS)


def time_slice(thread):
    """Nanoseconds, by sched_getattr(2) of Linux 6.12 and later; 0 before."""
    attributes = ctypes.create_string_buffer(48)
    assert ctypes.CDLL(None).syscall(315, thread, attributes, 48, 0) == 0
    return struct.unpack_from("Q", attributes, 24)[0]


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the number of the system call is that of x86-64")
def test_its_threads_have_short_time_slices(daemon):
    if time_slice(os.getpid()) == 0:
        pytest.skip("this kernel does not tell time slices")
    threads = list(map(int, os.listdir(f"/proc/{daemon.process.pid}/task")))
    assert len(threads) > 5
    assert {time_slice(thread) for thread in threads} == {100_000}


@pytest.fixture(params=SERVICES)
def served(request, start_daemon):
    """(a connection to the daemon or to its engine, its services, those of the other one)"""
    daemon = start_daemon(**WITH_ENGINE)
    channel = daemon.channel if request.param == "the daemon" else daemon.engine_channel
    (others,) = [names for program, names in SERVICES.items() if program != request.param]
    return channel, SERVICES[request.param], others


def test_health_is_serving_for_the_program_and_each_service(served):
    channel, services, others = served
    for service in ["", *services]:
        assert health(channel, service) == b"\x08\x01", service
    for service in ("pagoda.v1.Missing", *others):
        with pytest.raises(grpc.RpcError) as failure:
            health(channel, service)
        assert failure.value.code() == grpc.StatusCode.NOT_FOUND


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
def test_reflection_lists_the_services_and_describes_each(served, version):
    channel, services, others = served
    reflect = channel.stream_stream(f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo")
    (answer,) = reflect(iter([b"\x3a\x01*"]), timeout=CALL_SECONDS)
    assert not any(service.encode() in answer for service in others)
    for service in [*services, "grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection"]:
        assert service.encode() in answer
        # {4: the name of a symbol}. The answer has its file's descriptor; an error has none.
        (described,) = reflect(iter([b"\x22" + bytes([len(service)]) + service.encode()]), timeout=CALL_SECONDS)
        assert b".proto" in described and b"no symbol" not in described, service


def test_sigterm_ends_open_streams_and_the_daemon_with_status_0(daemon):
    client = Client(daemon.channel)
    client.allocate(3)
    done = threading.Event()

    def one_request_then_silence():
        yield cache_pb2.SessionRequest(session=client.session)
        done.wait()

    session = client.stub.Session(one_request_then_silence())
    next(session)
    watch = events_pb2_grpc.EventServiceStub(daemon.channel).Watch(events_pb2.WatchRequest())
    next(watch)
    segment = "/dev/shm" + client.pools()[0].segments[0].shm_name
    assert os.path.exists(segment)
    assert daemon.terminate() == 0, daemon.log.read_text()
    for stream in (watch, session):
        with pytest.raises(grpc.RpcError):
            for _ in stream:
                pass
    done.set()
    assert not os.path.exists(segment) and not daemon.unix_socket.exists()


def test_a_daemon_takes_over_what_a_killed_one_left(daemon):
    with Client(daemon.channel) as client:
        segment = "/dev/shm" + client.pools()[0].segments[0].shm_name
        client.cache(1, range(9))
        epoch = client.opened.epoch
    daemon.kill()
    assert os.path.exists(segment) and daemon.unix_socket.exists()
    daemon.start()
    with Client(daemon.channel) as client:
        assert client.opened.epoch != epoch
        assert client.match(range(9)).matched_tokens == 0
        assert len(client.allocate(64)) == 64
