"""Each error comes with its code and reason, and leaves everything as it was."""

import contextlib

import grpc
import pytest
from pagoda_client import Client, OperationError, call_status, handles, reason_of
from pagoda_daemon import CALL_SECONDS
from pagoda.v1 import admin_pb2, cache_pb2, engine_pb2, engine_pb2_grpc, events_pb2, events_pb2_grpc
from pagoda.v1 import types_pb2
from test_generate import GOLDEN

CAPACITY = 64
HUGE = 2**32 - 1


def state(daemon):
    """What an error must not change."""
    status = daemon.status()
    return list(status.windows[0].tiers), status.sessions, status.sequences, status.revision


@contextlib.contextmanager
def refused(daemon, code, reason):
    """The block fails with this code and reason, and the daemon is as it was."""
    before = state(daemon)
    with pytest.raises(OperationError) as failure:
        yield
    assert (failure.value.reason, failure.value.code) == (reason, code.value[0]), failure.value
    assert failure.value.message
    daemon.primary()
    assert state(daemon) == before


@pytest.fixture
def client(daemon):
    with Client(daemon.channel) as opened:
        yield opened


def test_allocating_more_than_is_left_is_refused_whole(daemon, client):
    held = client.allocate(CAPACITY - 2)
    with refused(daemon, grpc.StatusCode.RESOURCE_EXHAUSTED, "BLOCKS_EXHAUSTED"):
        client.allocate(3)
    with refused(daemon, grpc.StatusCode.RESOURCE_EXHAUSTED, "BLOCKS_EXHAUSTED"):
        client.add(1, range(9))
    held += client.allocate(2)
    with refused(daemon, grpc.StatusCode.RESOURCE_EXHAUSTED, "BLOCKS_EXHAUSTED"):
        client.allocate(1)
    client.free(held)
    assert daemon.primary().free_blocks == CAPACITY


def test_a_sequence_that_cannot_grow_keeps_what_it_has(daemon, client):
    client.add(1, range(4))
    held = client.allocate(CAPACITY - 1)
    with refused(daemon, grpc.StatusCode.RESOURCE_EXHAUSTED, "BLOCKS_EXHAUSTED"):
        client.reserve(1, 1)
    with refused(daemon, grpc.StatusCode.RESOURCE_EXHAUSTED, "BLOCKS_EXHAUSTED"):
        client.append(1, [7], computed_tokens=4)
    described = client.describe(1)
    assert (described.token_count, described.computed_tokens, described.reserved_tokens) == (4, 0, 4)
    client.free(held)


@pytest.mark.parametrize("call", [
    lambda client: client.allocate(0),
    lambda client: client.allocate(CAPACITY + 1),
    lambda client: client.allocate(HUGE),
    lambda client: client.free([]),
    lambda client: client.add(2, []),
    lambda client: client.add(2, range(4 * CAPACITY + 1)),
    lambda client: client.add(2, [5], reserved_tokens=HUGE),
    lambda client: client.reserve(1, 0),
    lambda client: client.reserve(1, HUGE),
])
def test_counts_that_are_zero_or_can_never_be_met_are_refused(daemon, client, call):
    client.add(1, range(5))
    with refused(daemon, grpc.StatusCode.INVALID_ARGUMENT, "INVALID_COUNT"):
        call(client)


def test_a_block_is_freed_once(daemon, client):
    first, second = client.allocate(2)
    with refused(daemon, grpc.StatusCode.FAILED_PRECONDITION, "DOUBLE_FREE"):
        client.free([first, second, first])
    client.free([first])
    with refused(daemon, grpc.StatusCode.FAILED_PRECONDITION, "DOUBLE_FREE"):
        client.free([second, first])
    client.free([second])


def test_a_handle_of_an_earlier_generation_is_stale(daemon, client):
    (old,) = client.allocate(1)
    client.free([old])
    held = client.allocate(CAPACITY)
    assert old.block_id in [handle.block_id for handle in held]
    with refused(daemon, grpc.StatusCode.FAILED_PRECONDITION, "STALE_HANDLE"):
        client.free([old])
    client.free(held)


def test_blocks_of_others_are_foreign(daemon, client):
    with Client(daemon.connect(), "other") as other:
        theirs = other.allocate(1)
        with refused(daemon, grpc.StatusCode.PERMISSION_DENIED, "FOREIGN_BLOCK"):
            client.free(theirs)
        sequence_block = handles(client.add(1, range(3)).tables[0].blocks)[0]
        with refused(daemon, grpc.StatusCode.PERMISSION_DENIED, "FOREIGN_BLOCK"):
            client.free([sequence_block])


def test_blocks_and_windows_that_do_not_exist_are_not_found(daemon, client):
    with refused(daemon, grpc.StatusCode.NOT_FOUND, "UNKNOWN_BLOCK"):
        client.free([types_pb2.BlockHandle(block_id=CAPACITY, generation=1)])
    with refused(daemon, grpc.StatusCode.NOT_FOUND, "UNKNOWN_WINDOW"):
        client.run(allocate_blocks=cache_pb2.AllocateBlocksRequest(window_size=77, count=1))


@pytest.mark.parametrize("call", [
    lambda client: client.reserve(1, 1),
    lambda client: client.commit(1, 1),
    lambda client: client.append(1, [4]),
    lambda client: client.describe(1),
    lambda client: client.free_sequence(1),
])
def test_a_sequence_is_known_to_its_own_session_only(daemon, client, call):
    with Client(daemon.connect(), "other") as other:
        other.add(1, range(5))
        with refused(daemon, grpc.StatusCode.NOT_FOUND, "UNKNOWN_SEQUENCE"):
            call(client)


def test_a_sequence_id_names_one_sequence_at_a_time(daemon, client):
    client.add(1, range(5))
    with refused(daemon, grpc.StatusCode.ALREADY_EXISTS, "SEQUENCE_EXISTS"):
        client.add(1, range(5))
    client.free_sequence(1)
    client.add(1, range(5))


def test_a_commit_stays_inside_its_reservation_and_its_tokens(daemon, client):
    client.add(1, range(6))
    with refused(daemon, grpc.StatusCode.FAILED_PRECONDITION, "RESERVATION_EXCEEDED"):
        client.commit(1, 6, tokens=range(1, 10))
    with refused(daemon, grpc.StatusCode.INVALID_ARGUMENT, "COMPUTED_BEYOND_TOKENS"):
        client.commit(1, 7)
    client.commit(1, 6)
    with refused(daemon, grpc.StatusCode.INVALID_ARGUMENT, "COMPUTED_BACKWARDS"):
        client.commit(1, 5)


def test_operations_of_a_batch_fail_one_by_one(daemon, client):
    allocate = cache_pb2.AllocateBlocksRequest
    results = client.execute(
        cache_pb2.Operation(allocate_blocks=allocate(count=2)),
        cache_pb2.Operation(allocate_blocks=allocate(count=0)),
        cache_pb2.Operation(free_sequence=cache_pb2.FreeSequenceRequest(sequence_id=5)),
        cache_pb2.Operation(allocate_blocks=allocate(count=3)))
    assert [reason_of(result.error) if result.HasField("error") else "" for result in results] == [
        "", "INVALID_COUNT", "UNKNOWN_SEQUENCE", ""]
    assert daemon.primary().active_blocks == 5


def test_a_batch_has_a_limit_and_its_operations_a_kind(daemon, client):
    match = cache_pb2.Operation(match_prefix=cache_pb2.MatchPrefixRequest(tokens=[1, 2]))
    assert len(client.execute(*[match] * 4096)) == 4096
    with refused(daemon, grpc.StatusCode.INVALID_ARGUMENT, "BATCH_TOO_LARGE"):
        client.execute(*[match] * 4097)
    (result,) = client.execute(cache_pb2.Operation())
    assert reason_of(result.error) == "INVALID_ARGUMENT"


def test_sessions_are_proved_by_their_token(daemon, client):
    right = client.session
    client.session = types_pb2.SessionRef(session_id=right.session_id + 1000, token=right.token, token_high=right.token_high)
    with refused(daemon, grpc.StatusCode.NOT_FOUND, "UNKNOWN_SESSION"):
        client.allocate(1)
    client.session = types_pb2.SessionRef(session_id=right.session_id, token=right.token ^ 1)
    with refused(daemon, grpc.StatusCode.FAILED_PRECONDITION, "STALE_SESSION"):
        client.allocate(1)
    client.session = types_pb2.SessionRef(session_id=right.session_id, token=right.token)  # A client that knows only half of the token.
    with refused(daemon, grpc.StatusCode.FAILED_PRECONDITION, "STALE_SESSION"):
        client.allocate(1)
    client.session = types_pb2.SessionRef(session_id=right.session_id, token=right.token, token_high=right.token_high ^ 1)
    with refused(daemon, grpc.StatusCode.FAILED_PRECONDITION, "STALE_SESSION"), calls():
        list(client.stub.Session(iter([cache_pb2.SessionRequest(session=client.session)]), timeout=CALL_SECONDS))
    with refused(daemon, grpc.StatusCode.FAILED_PRECONDITION, "STALE_SESSION"), calls():
        client.stub.CloseSession(cache_pb2.CloseSessionRequest(session=client.session), timeout=CALL_SECONDS)
    client.session = right


def test_a_closed_session_is_over_and_owns_nothing(daemon):
    client = Client(daemon.channel)
    client.allocate(7)
    client.add(1, range(9))
    client.close()
    assert daemon.primary().free_blocks == CAPACITY
    with refused(daemon, grpc.StatusCode.FAILED_PRECONDITION, "STALE_SESSION"):
        client.allocate(1)


def test_a_lease_above_the_maximum_is_refused(daemon):
    with refused(daemon, grpc.StatusCode.INVALID_ARGUMENT, "INVALID_ARGUMENT"), calls():
        Client(daemon.channel, lease_ms=60_001)


@contextlib.contextmanager
def calls():
    """Turns a failed call into an OperationError."""
    try:
        yield
    except grpc.RpcError as error:
        raise OperationError(call_status(error)) from None


# --- Fields that the daemon does not know ---

UNKNOWN = b"\xe8\x04\x01"  # Field 77, the number 1.


def with_unknown_field(message):
    return type(message).FromString(message.SerializeToString() + UNKNOWN)


def check_not_served(status):
    assert (reason_of(status), status.code) == ("FIELD_NOT_SERVED", grpc.StatusCode.UNIMPLEMENTED.value[0])
    assert "unknown field number 77" in status.message


@pytest.mark.parametrize("kind", [field.name for field in cache_pb2.Operation.DESCRIPTOR.oneofs_by_name["operation"].fields])
def test_an_operation_with_an_unknown_field_is_refused_by_its_number(daemon, client, kind):
    before = state(daemon)
    inner = with_unknown_field(getattr(cache_pb2.Operation(), kind))
    outer = with_unknown_field(cache_pb2.Operation(**{kind: type(inner)()}))
    for operation in (cache_pb2.Operation(**{kind: inner}), outer):
        (result,) = client.execute(operation)
        check_not_served(result.error)
    assert state(daemon) == before


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


def test_resetting_an_empty_cache_removes_nothing(daemon):
    assert daemon.admin.ResetPrefixCache(admin_pb2.ResetPrefixCacheRequest(), timeout=CALL_SECONDS).removed_blocks == 0


def test_unknown_methods_do_not_disturb_the_daemon(daemon):
    call = daemon.channel.unary_unary("/pagoda.v1.CacheService/Missing")
    with pytest.raises(grpc.RpcError) as failure:
        call(b"\xff\xff garbage", timeout=CALL_SECONDS)
    assert failure.value.code() == grpc.StatusCode.UNIMPLEMENTED
    execute = daemon.channel.unary_unary("/pagoda.v1.CacheService/Execute")
    with pytest.raises(grpc.RpcError):
        execute(b"\xff\xff garbage", timeout=CALL_SECONDS)
    assert daemon.primary().free_blocks == CAPACITY
