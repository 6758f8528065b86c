"""Messages that the daemon does not know are refused, and leave everything as it was."""

import grpc
import pytest
from pagoda_client import Client, call_status, reason_of
from pagoda_daemon import CALL_SECONDS
from pagoda.v1 import cache_pb2, engine_pb2, engine_pb2_grpc, events_pb2, events_pb2_grpc
from test_generate import GOLDEN

CAPACITY = 64


def state(daemon):
    """What an error must not change."""
    status = daemon.status()
    return list(status.windows[0].tiers), status.sessions, status.sequences, status.revision


@pytest.fixture
def client(daemon):
    with Client(daemon.channel) as opened:
        yield opened


UNKNOWN = b"\xe8\x04\x01"  # Field 77, the number 1.


def with_unknown_field(message):
    return type(message).FromString(message.SerializeToString() + UNKNOWN)


def check_not_served(status):
    assert (reason_of(status), status.code) == ("FIELD_NOT_SERVED", grpc.StatusCode.UNIMPLEMENTED.value[0])
    assert "unknown field number 77" in status.message


def test_every_call_refuses_an_unknown_field(daemon, client):
    events = events_pb2_grpc.EventServiceStub(daemon.channel)
    batch = with_unknown_field(cache_pb2.Batch())
    before = state(daemon)
    for call in (lambda: client.stub.OpenSession(with_unknown_field(cache_pb2.OpenSessionRequest()), timeout=CALL_SECONDS),
                 lambda: client.stub.Execute(cache_pb2.ExecuteRequest(session=client.session, batch=batch), timeout=CALL_SECONDS),
                 lambda: list(events.Watch(with_unknown_field(events_pb2.WatchRequest()), timeout=CALL_SECONDS))):
        with pytest.raises(grpc.RpcError) as failure:
            call()
        check_not_served(call_status(failure.value))
    assert state(daemon) == before


def test_the_engine_refuses_an_unknown_field(start_daemon):
    daemon = start_daemon(engine={"model_dir": str(GOLDEN)}, cache={"layers": None})
    before = state(daemon)
    engine = engine_pb2_grpc.EngineServiceStub(daemon.engine_channel)
    with pytest.raises(grpc.RpcError) as failure:
        list(engine.Generate(with_unknown_field(engine_pb2.GenerateRequest()), timeout=CALL_SECONDS))
    check_not_served(call_status(failure.value))
    assert state(daemon) == before


def test_unknown_methods_do_not_disturb_the_daemon(daemon):
    call = daemon.channel.unary_unary("/pagoda.v1.CacheService/Missing")
    with pytest.raises(grpc.RpcError) as failure:
        call(b"\xff\xff garbage", timeout=CALL_SECONDS)
    assert failure.value.code() == grpc.StatusCode.UNIMPLEMENTED
    execute = daemon.channel.unary_unary("/pagoda.v1.CacheService/Execute")
    with pytest.raises(grpc.RpcError):
        execute(b"\xff\xff garbage", timeout=CALL_SECONDS)
    assert daemon.primary().free_blocks == CAPACITY
