"""Requests that are far larger than their methods need, or consist of a million empty fields, to
every method of every service: refused by their bytes, with little work and memory."""

import os
import pathlib

import grpc
import pytest
from google.protobuf import descriptor_pb2
from pagoda_client import call_status, reason_of
from pagoda_daemon import CALL_SECONDS
from test_credentials import GENERATE, METHODS, OPERATOR, WITH_ENGINE, channel_of, guarded  # guarded is a fixture.

REFLECTIONS = [f"grpc.reflection.{version}.ServerReflection/ServerReflectionInfo" for version in ("v1", "v1alpha")]
HEALTH = ["grpc.health.v1.Health/Check", "grpc.health.v1.Health/Watch"]
# These read requests up to server.max_message_bytes: prompts and batches.
LARGE = ["CacheService/FetchPrefix", "CacheService/ExportPrefix", GENERATE, "AdminService/InspectPrefix", "CacheService/Execute", "CacheService/Session"]
MANY = 1_000_000
LARGEST_BYTES = 31 << 20  # gRPC takes twice max_message_bytes.
# Parsed, the largest one took 1.0 to 1.6 s and up to 1,023 MiB. Its bytes take 0.13 s.
MAX_CPU_SECONDS = 0.6
# gRPC copies a health check twice.
MAX_GROWTH_BYTES = {LARGEST_BYTES: 4 * LARGEST_BYTES, None: 32 << 20}
FIELD = descriptor_pb2.FieldDescriptorProto


def empty_field(number):
    assert number < 16
    return bytes([number << 3 | 2, 0])


def bodies(name):
    """{what: bytes} of requests to the method."""
    if name in METHODS:
        fields = METHODS[name][1].DESCRIPTOR.fields
        known = [field for field in fields if field.type in (FIELD.TYPE_MESSAGE, FIELD.TYPE_STRING, FIELD.TYPE_BYTES) and field.number < 16]
        known.sort(key=lambda field: field.label != FIELD.LABEL_REPEATED)
        numbers = {field.number for field in fields}
    else:
        known, numbers = [], set(range(1, 9))
    unknown = empty_field(max(set(range(1, 16)) - numbers))
    found = {"largest": unknown * (LARGEST_BYTES // 2), "unknown": unknown * MANY}
    if known:
        found["known"] = empty_field(known[0].number) * MANY
    return found


def refusal(channel, name, body):
    """The reason of the refusal; None without one."""
    streams = name in METHODS and METHODS[name][0] or None
    both = name in REFLECTIONS or streams is not None and streams.client_streaming
    answers = both or name == HEALTH[1] or streams is not None and streams.server_streaming
    kind = channel.stream_stream if both else channel.unary_stream if answers else channel.unary_unary
    path = f"/{name}" if "." in name else f"/pagoda.v1.{name}"
    try:
        answer = kind(path)(iter([body]) if both else body, timeout=CALL_SECONDS)
        if answers:
            next(answer, None)
            answer.cancel()
    except grpc.RpcError as error:
        return reason_of(call_status(error))
    return None


def expected(name, what):
    if name in HEALTH:
        return None  # gRPC answers. It makes no objects of unknown fields.
    if name not in LARGE or what == "largest":
        return "MESSAGE_TOO_LARGE"
    if what == "unknown":
        return "FIELD_NOT_SERVED"
    return "INVALID_ARGUMENT"


def of_status(process, key):
    for line in pathlib.Path(f"/proc/{process.pid}/status").read_text().splitlines():
        if line.startswith(key):
            return int(line.split()[1]) << 10
    raise AssertionError("the process has ended")


def cpu_seconds(process):
    fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def check(process, channel, name, what, body, wanted):
    pathlib.Path(f"/proc/{process.pid}/clear_refs").write_text("5")  # Begins the peak anew.
    memory, cpu = of_status(process, "VmRSS:"), cpu_seconds(process)
    assert refusal(channel, name, body) == wanted, (name, what)
    growth = of_status(process, "VmHWM:") - memory
    spent = cpu_seconds(process) - cpu
    print(f"{name} {what}: {growth >> 20} MiB, {spent:.2f} s")
    assert spent < MAX_CPU_SECONDS, (name, what)
    assert growth < MAX_GROWTH_BYTES.get(len(body), MAX_GROWTH_BYTES[None]), (name, what, growth)


@pytest.mark.parametrize("at", ["the daemon", "the engine"])
@pytest.mark.parametrize("caller", ["a stranger", "the operator"])
def test_no_method_makes_objects_of_a_hostile_request(guarded, caller, at):
    token = OPERATOR if caller == "the operator" else None
    if at == "the daemon":
        daemon = guarded(events={"smg": {"enabled": True}})
        process, channel, operator = daemon.process, channel_of(daemon, token), channel_of(daemon, OPERATOR)
        methods = [name for name in METHODS if name != GENERATE]
    else:
        daemon = guarded(**WITH_ENGINE)
        process, channel, operator = daemon.engine_process(), daemon.connect_engine(token), daemon.connect_engine(OPERATOR)
        methods = [GENERATE]
    reflected = operator.stream_stream(f"/{REFLECTIONS[0]}")(iter([b"\x3a\x01*"]), timeout=CALL_SECONDS)
    listed = b"".join(reflected)
    names = [*methods, *REFLECTIONS, *HEALTH]
    for service in {name.split("/")[0] for name in names}:
        assert service.encode() in listed, "the walk has a service that is not served"
    assert listed.count(b".v1.") + listed.count(b".v1alpha.") + listed.count(b"VllmEngine") == len({name.split("/")[0] for name in names})
    for name in names:
        for what, body in bodies(name).items():
            wanted = expected(name, what)
            if caller == "a stranger" and name not in HEALTH:
                wanted = "UNAUTHENTICATED"
            check(process, channel, name, what, body, wanted)


@pytest.mark.parametrize("name", ["pagoda.v1.CacheService/Execute", "pagoda.v1.AdminService/GetStatus", f"pagoda.v1.{GENERATE}", *HEALTH])
def test_a_compressed_request_is_not_inflated(guarded, name):
    """256 KiB of gzip would become 256 MiB of zeros. gRPC's limit is for the compressed bytes."""
    at_engine = name.endswith(GENERATE)
    daemon = guarded(**WITH_ENGINE) if at_engine else guarded(events={"smg": {"enabled": True}})
    process, channel = (daemon.engine_process(), daemon.connect_engine(OPERATOR)) if at_engine else (daemon.process, channel_of(daemon, OPERATOR))
    pathlib.Path(f"/proc/{process.pid}/clear_refs").write_text("5")
    memory = of_status(process, "VmRSS:")
    call = channel.unary_unary(f"/{name}")
    with pytest.raises(grpc.RpcError) as refused:
        call(bytes(256 << 20), compression=grpc.Compression.Gzip, timeout=CALL_SECONDS)
    assert refused.value.code() == grpc.StatusCode.UNIMPLEMENTED
    assert "gzip" in refused.value.details()
    assert of_status(process, "VmHWM:") - memory < 64 << 20
