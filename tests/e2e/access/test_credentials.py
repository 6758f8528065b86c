"""The rights of each credential: every credential against every method, generated from the
contract's descriptors."""

import asyncio
import importlib
import itertools
import pkgutil
import re
import subprocess
import threading

import grpc
import pagoda
import pagoda.aio
import pytest
import pagoda.v1
from google.protobuf import descriptor_pb2, message_factory
from google.rpc import error_details_pb2
from pagoda_client import Client, OperationError, authorized, call_status, reason_of
from pagoda_daemon import CALL_SECONDS, PAGODAD
from vllm.grpc import engine_pb2 as engine_pb2_of_vllm
from pagoda.v1 import admin_pb2, cache_pb2, cache_pb2_grpc, engine_pb2, engine_pb2_grpc, events_pb2, events_pb2_grpc, types_pb2
from test_generate import EXPECTED, GOLDEN

ALICE, BOB, CAROL, OPERATOR = (f"token-of-{name}-0123456789" for name in ("alice", "bob", "carol", "the-operator"))
PAGODACTL = PAGODAD.with_name("pagodactl")

# Names of methods: without the package for pagoda.v1, with the package for others.
SUBSCRIBE = "vllm.grpc.engine.VllmEngine/SubscribeKvEvents"
# The engine serves it, at its own addresses. It has the daemon's callers.
GENERATE = "EngineService/Generate"
WITH_ENGINE = {"engine": {"model_dir": str(GOLDEN.resolve()), "grpc_address": "127.0.0.1:0"}, "cache": {"layers": None, "primary": 1024}}

# The result of each caller's call: "OK" or the reason. The request names one of alice's sessions. A
# caller without known credentials is always refused, so the columns are alice, bob and the
# operator.
OF_A_SESSION = ("OK", "UNKNOWN_SESSION", "OK")
FOR_ALL = ("OK", "OK", "OK")
FOR_OPERATORS = ("PERMISSION_DENIED", "PERMISSION_DENIED", "OK")
ALLOWED = {
    "CacheService/OpenCache": ("INVALID_ARGUMENT", "INVALID_ARGUMENT", "INVALID_ARGUMENT"),  # A cache without a name.
    "CacheService/OpenSession": FOR_ALL,
    "CacheService/CloseSession": OF_A_SESSION,
    "CacheService/KeepAlive": OF_A_SESSION,
    "CacheService/Execute": OF_A_SESSION,
    "CacheService/Session": OF_A_SESSION,
    "CacheService/FetchPrefix": OF_A_SESSION,
    "CacheService/ExportPrefix": OF_A_SESSION,
    "CacheService/Materialize": ("UNKNOWN_SEQUENCE", "UNKNOWN_SESSION", "UNKNOWN_SEQUENCE"),
    "EventService/Watch": FOR_ALL,
    SUBSCRIBE: FOR_ALL,
    GENERATE: ("INVALID_COUNT", "INVALID_COUNT", "INVALID_COUNT"),  # No new tokens.
    "AdminService/GetStatus": FOR_OPERATORS,
    "AdminService/ListCaches": FOR_ALL,
    "AdminService/DropCache": ("PERMISSION_DENIED", "PERMISSION_DENIED", "UNKNOWN_CACHE"),
    "AdminService/ResetPrefixCache": FOR_OPERATORS,
    "AdminService/ListSessions": FOR_OPERATORS,
    "AdminService/ListSequences": FOR_OPERATORS,
    "AdminService/ListTenants": FOR_ALL,
    "AdminService/ListQuarantines": FOR_OPERATORS,
    "AdminService/ReleaseQuarantine": ("PERMISSION_DENIED", "PERMISSION_DENIED", "UNKNOWN_QUARANTINE"),
    "AdminService/EndSession": FOR_OPERATORS,
    "AdminService/InspectPrefix": FOR_OPERATORS,
    "AdminService/GetHitRateCurve": FOR_OPERATORS,
    # It is last, because it ends the daemon.
    "AdminService/Drain": FOR_OPERATORS,
}
ENDS_THE_SESSION = ("CacheService/CloseSession", "AdminService/EndSession", "AdminService/Drain")
TOKENS = {"nobody": None, "a stranger": "token-of-a-stranger-0123456789", "alice": ALICE, "bob": BOB, "the operator": OPERATOR}


def methods():
    """{"CacheService/Execute": its MethodDescriptorProto, request and response class}, for every
    file of pagoda.v1, and for the services for routers."""
    found = {}
    files = [importlib.import_module(f"pagoda.v1.{module.name}").DESCRIPTOR for module in pkgutil.iter_modules(pagoda.v1.__path__)
             if module.name.endswith("_pb2")]
    for file in (*files, engine_pb2_of_vllm.DESCRIPTOR):
        proto = descriptor_pb2.FileDescriptorProto.FromString(file.serialized_pb)
        for service in proto.service:
            described = file.services_by_name[service.name]
            service_name = described.full_name.removeprefix("pagoda.v1.")
            for method in service.method:
                request, response = (message_factory.MessageFactory(file.pool).GetPrototype(kind)
                                     for kind in (described.methods_by_name[method.name].input_type,
                                                  described.methods_by_name[method.name].output_type))
                found[f"{service_name}/{method.name}"] = method, request, response
    return found


METHODS = methods()


def outcome(channel, name, session, stir=lambda: None):
    """The result of one call. `stir()` causes an event, for a stream that is silent until then."""
    method, request_class, response_class = METHODS[name]
    kind = {(False, False): channel.unary_unary, (False, True): channel.unary_stream,
            (True, True): channel.stream_stream}[method.client_streaming, method.server_streaming]
    path = f"/{name}" if name == SUBSCRIBE else f"/pagoda.v1.{name}"
    call = kind(path, request_serializer=request_class.SerializeToString, response_deserializer=response_class.FromString)
    fields = {field.name for field in request_class.DESCRIPTOR.fields}
    request = request_class()
    if "session" in fields:
        request.session.CopyFrom(session)
    if "session_id" in fields:
        request.session_id = session.session_id
    if "tokens" in fields:
        request.tokens.extend(range(9))
    try:
        answer = call(iter([request]) if method.client_streaming else request, timeout=CALL_SECONDS)
        if method.server_streaming:
            if name == SUBSCRIBE:
                answer.initial_metadata()  # The stream has begun, or is refused.
                stir()
            next(answer)
            answer.cancel()
    except grpc.RpcError as error:
        if error.code() == grpc.StatusCode.UNIMPLEMENTED:
            return "UNIMPLEMENTED"  # gRPC refuses it and gives no reason.
        return reason_of(call_status(error))
    return "OK"


@pytest.fixture
def guarded(start_daemon):
    """guarded(**sections) starts a daemon with an operator and the tenants alice and bob, and
    carol, who shares."""
    def start(**sections):
        tenants = {"alice": ALICE, "bob": BOB, "carol": CAROL}
        return start_daemon(operator_token=OPERATOR, secrets={f"{name}.tokens": token for name, token in tenants.items()},
                            tenants=[{"name": name, "tokens_file": f"{name}.tokens", "shares": name == "carol"} for name in tenants],
                            **sections)

    return start


def channel_of(daemon, token, address=None):
    channel = daemon.connect(address)
    return channel if token is None else authorized(channel, token)


def engine_channel_of(daemon, token, over):
    return channel_of(daemon, token, daemon.engine_grpc_address) if over == "loopback" else daemon.connect_engine(token)


def test_the_table_has_every_method_of_the_contract():
    assert sorted(METHODS) == sorted(ALLOWED)


@pytest.mark.parametrize("over", ["the Unix socket", "loopback"])
def test_every_credential_with_every_method(guarded, over):
    daemon = guarded(events={"smg": {"enabled": True}}, **WITH_ENGINE)
    address = daemon.grpc_address if over == "loopback" else None
    channels = {name: channel_of(daemon, token, address) for name, token in TOKENS.items()}
    engine_channels = {name: engine_channel_of(daemon, token, over) for name, token in TOKENS.items()}
    alice = cache_pb2_grpc.CacheServiceStub(channels["alice"])
    fresh = itertools.count(1000, 10)

    def stir():
        with Client(channels["alice"]) as client:
            number = next(fresh)
            client.cache(1, range(number, number + 9))

    outcomes, expected = {}, {}
    for method, allowed in ALLOWED.items():
        for caller, wanted in zip(TOKENS, ("UNAUTHENTICATED", "UNAUTHENTICATED", *allowed)):
            session = alice.OpenSession(cache_pb2.OpenSessionRequest(), timeout=CALL_SECONDS).session
            channel = (engine_channels if method == GENERATE else channels)[caller]
            outcomes[method, caller] = outcome(channel, method, session, stir)
            expected[method, caller] = wanted
            if outcomes[method, caller] != "OK" or method not in ENDS_THE_SESSION:
                alice.CloseSession(cache_pb2.CloseSessionRequest(session=session), timeout=CALL_SECONDS)
    assert outcomes == expected
    daemon.kill()  # It drains, and would wait for the sessions that OpenSession's row has opened.


def test_each_program_has_its_own_methods(guarded):
    """The engine has none of the daemon's methods, and the daemon none of the engine's. Even an
    operator cannot call them there."""
    daemon = guarded(**WITH_ENGINE)
    with Client(daemon.channel) as client:
        assert outcome(daemon.channel, GENERATE, client.session) == "UNIMPLEMENTED"
        for method in ("CacheService/Execute", "EventService/Watch", "AdminService/GetStatus"):
            assert outcome(daemon.engine_channel, method, client.session) == "UNIMPLEMENTED", method


@pytest.mark.parametrize("place", ["the daemon", "the engine"])
def test_health_asks_for_nothing_and_reflection_for_any_credentials(guarded, place):
    daemon = guarded(**WITH_ENGINE if place == "the engine" else {})
    service = b"pagoda.v1.CacheService" if place == "the daemon" else b"pagoda.v1.EngineService"

    def connect(token):
        return channel_of(daemon, token) if place == "the daemon" else daemon.connect_engine(token)

    assert connect(None).unary_unary("/grpc.health.v1.Health/Check")(b"\x0a\x00", timeout=CALL_SECONDS) == b"\x08\x01"
    for version in ("v1", "v1alpha"):
        path = f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo"
        for name, token in TOKENS.items():
            reflect = connect(token).stream_stream(path)
            answers = reflect(iter([b"\x3a\x01*"]), timeout=CALL_SECONDS)
            if name in ("nobody", "a stranger"):
                with pytest.raises(grpc.RpcError) as failure:
                    next(answers)
                assert reason_of(call_status(failure.value)) == "UNAUTHENTICATED", (version, name)
            else:
                (answer,) = answers
                assert service in answer, (version, name)


def refusal(call, *arguments):
    with pytest.raises(grpc.RpcError) as failure:
        call(*arguments, timeout=CALL_SECONDS)
    return call_status(failure.value)


def test_a_session_is_its_callers_and_an_operator_may_name_another(guarded):
    daemon = guarded()
    alice, bob, operator = (cache_pb2_grpc.CacheServiceStub(channel_of(daemon, token)) for token in (ALICE, BOB, OPERATOR))

    def open_session(stub, tenant=""):
        return stub.OpenSession(cache_pb2.OpenSessionRequest(tenant=tenant), timeout=CALL_SECONDS)

    opened = [open_session(alice), open_session(alice, "alice"), open_session(operator), open_session(operator, "alice")]
    assert [one.tenant for one in opened] == ["alice", "alice", "", "alice"]
    for tenant in ("bob", "mallory"):
        assert reason_of(refusal(alice.OpenSession, cache_pb2.OpenSessionRequest(tenant=tenant))) == "PERMISSION_DENIED"
    assert reason_of(refusal(operator.OpenSession, cache_pb2.OpenSessionRequest(tenant="mallory"))) == "UNKNOWN_TENANT"
    alice.KeepAlive(cache_pb2.KeepAliveRequest(session=opened[3].session), timeout=CALL_SECONDS)
    # A tenant cannot use the operator's session either.
    assert reason_of(refusal(bob.KeepAlive, cache_pb2.KeepAliveRequest(session=opened[2].session))) == "UNKNOWN_SESSION"
    for one in opened:
        operator.CloseSession(cache_pb2.CloseSessionRequest(session=one.session), timeout=CALL_SECONDS)


def test_only_an_operator_has_a_sequence_charged_to_another(guarded):
    daemon = guarded()
    with Client(channel_of(daemon, ALICE)) as alice, Client(channel_of(daemon, CAROL)) as carol, Client(channel_of(daemon, OPERATOR)) as operator:
        def refused(client, tenant):
            reasons = set()
            for request in (dict(add_sequence=cache_pb2.AddSequenceRequest(sequence_id=9, tokens=[1, 2, 3], tenant=tenant)),
                            dict(query_capacity=cache_pb2.QueryCapacityRequest(tokens=[1, 2, 3], tenant=tenant))):
                with pytest.raises(OperationError) as failure:
                    client.run(**request)
                reasons.add(failure.value.reason)
            return reasons

        assert refused(alice, "bob") == refused(carol, "alice") == refused(carol, "mallory") == {"PERMISSION_DENIED"}
        assert refused(operator, "mallory") == {"UNKNOWN_TENANT"}
        alice.run(add_sequence=cache_pb2.AddSequenceRequest(sequence_id=9, tokens=[1, 2, 3], tenant="alice"))
        operator.run(add_sequence=cache_pb2.AddSequenceRequest(sequence_id=9, tokens=range(10), tenant="carol"))
        listed = daemon.admin.ListTenants(admin_pb2.ListTenantsRequest(), timeout=CALL_SECONDS).tenants
        assert {tenant.name: tenant.use[0].used_blocks for tenant in listed} == {"": 0, "alice": 1, "bob": 0, "carol": 3}


def test_anothers_session_looks_as_if_it_had_never_been_opened(guarded):
    daemon = guarded()
    bob = cache_pb2_grpc.CacheServiceStub(channel_of(daemon, BOB))
    with Client(channel_of(daemon, ALICE)) as alice:
        never = types_pb2.SessionRef(session_id=alice.session.session_id + 1000, token=1)
        for session in (alice.session, types_pb2.SessionRef(session_id=alice.session.session_id, token=7)):
            anothers = refusal(bob.KeepAlive, cache_pb2.KeepAliveRequest(session=session))
            unknown = refusal(bob.KeepAlive, cache_pb2.KeepAliveRequest(session=never))
            assert anothers.code == unknown.code
            assert re.sub(r"\d+", "N", anothers.message) == re.sub(r"\d+", "N", unknown.message)
        alice.allocate(1)


def test_a_stream_that_names_anothers_session_ends(guarded):
    daemon = guarded()
    bob = cache_pb2_grpc.CacheServiceStub(channel_of(daemon, BOB))
    with Client(channel_of(daemon, ALICE)) as alice:
        with pytest.raises(grpc.RpcError) as failure:
            next(bob.Session(iter([cache_pb2.SessionRequest(session=alice.session)]), timeout=CALL_SECONDS))
        assert reason_of(call_status(failure.value)) == "UNKNOWN_SESSION"


def test_tokens_are_exchanged_while_the_daemon_runs(guarded):
    daemon = guarded()
    fresh = "another-token-of-alice-0123456789"

    def known(token):
        return outcome(channel_of(daemon, token), "CacheService/KeepAlive", session) == "OK"

    with Client(channel_of(daemon, OPERATOR)) as client:
        session = client.stub.OpenSession(cache_pb2.OpenSessionRequest(tenant="alice"), timeout=CALL_SECONDS).session
        assert known(ALICE) and not known(fresh)
        daemon.write_secret("alice.tokens", f"{ALICE}\n{fresh}")
        daemon.wait_until(lambda _: known(fresh))
        assert known(ALICE)
        daemon.write_secret("alice.tokens", fresh)
        daemon.wait_until(lambda _: not known(ALICE))
        assert known(fresh)
        daemon.write_secret("alice.tokens", "short")
        daemon.wait_until(lambda daemon: "not a token of 16" in daemon.log.read_text())
        assert known(fresh)
        client.stub.CloseSession(cache_pb2.CloseSessionRequest(session=session), timeout=CALL_SECONDS)
    assert not any(token in daemon.log.read_text() for token in (ALICE, BOB, OPERATOR, fresh, "short\n"))


def test_what_a_tenant_may_not_see_leaves_no_gap_in_its_stream(guarded):
    daemon = guarded()
    streams = {}
    for name, token in (("alice", ALICE), ("carol", CAROL), ("operator", OPERATOR)):
        stream = events_pb2_grpc.EventServiceStub(channel_of(daemon, token)).Watch(events_pb2.WatchRequest())
        streams[name] = stream, next(stream)
    with Client(daemon.channel) as operator, Client(channel_of(daemon, ALICE)) as alice:
        for number in range(20):
            operator.cache(number + 1, range(number * 100, number * 100 + 9))
            if number % 4 == 0:
                alice.cache(number + 1, range(number * 100, number * 100 + 9))
    last = daemon.status().revision
    seen = {}
    for name, (stream, message) in streams.items():
        events = []
        while message.revision < last:
            previous, message = message.revision, next(stream)
            assert message.previous_revision == previous
            events += message.events
        seen[name] = [event.revision for event in events if event.HasField("stored")]
        tenants = {event.stored.namespace.tenant for event in events if event.HasField("stored")}
        assert tenants == {"alice": {"alice"}, "carol": {""}, "operator": {"alice", ""}}[name]
        stream.cancel()
    assert sorted(seen["alice"] + seen["carol"]) == seen["operator"] and len(seen["alice"]) >= 5 and len(seen["carol"]) >= 20


def test_who_shares_reads_no_salts_and_ends_nothing_of_others(guarded):
    daemon = guarded()
    stream = events_pb2_grpc.EventServiceStub(channel_of(daemon, CAROL)).Watch(events_pb2.WatchRequest())
    late = events_pb2.WatchRequest(snapshot=True)
    salted = {"namespace": types_pb2.Namespace(cache_salt="a secret of the operator's")}
    next(stream)
    with Client(daemon.channel) as operator, Client(channel_of(daemon, CAROL)) as carol:
        operator.cache(1, range(100, 132), **salted)
        operator.cache(2, range(200, 232))
        pin = operator.pin(range(100, 132), **salted).pin_id
        assert pin and [listed.pin_id for listed in operator.pins().pins] == [pin]

        assert not carol.pins().pins
        ended = carol.execute(cache_pb2.Operation(unpin_prefix=cache_pb2.UnpinPrefixRequest(pin_id=pin)))[0]
        assert reason_of(ended.error) == "UNKNOWN_PIN"
        for tokens, fields in ((range(200, 232), {}), ((), {}), (range(100, 132), salted)):
            forgotten = carol.execute(cache_pb2.Operation(invalidate_prefix=cache_pb2.InvalidatePrefixRequest(tokens=tokens, **fields)))[0]
            assert reason_of(forgotten.error) == "PERMISSION_DENIED"
        assert operator.match(range(200, 232)).matched_tokens == 31
        operator.unpin(pin)
        last = daemon.status().revision
        told, hidden = [], []
        late_stream = events_pb2_grpc.EventServiceStub(channel_of(daemon, CAROL)).Watch(late)
        for messages, is_over in ((stream, lambda message: message.revision >= last), (late_stream, lambda message: message.snapshot_end)):
            for message in messages:
                assert b"a secret" not in message.SerializeToString()
                for event in message.events:
                    assert not event.updated.HasField("ended_pin"), "the pin was the operator's"
                    if event.HasField("stored"):
                        (hidden if event.stored.content_hidden else told).append(event.stored)
                if is_over(message):
                    break
            messages.cancel()
        assert all(block.tokens[0] >= 200 for stored in told for block in stored.blocks) and told
        assert len(hidden) >= 2 and not any(block.tokens or not block.token_count for stored in hidden for block in stored.blocks)
        # A reader that knows the salt can compute the same hashes.
        known = pagoda.block_hashes(list(range(100, 132)), daemon.config["cache"]["tokens_per_block"],
                                    namespace=pagoda.Namespace(cache_salt="a secret of the operator's"))
        assert {block.block_hash for stored in hidden for block in stored.blocks} == set(known)


def test_what_a_tenant_generates_is_its_own(guarded):
    daemon = guarded(engine={"model_dir": str(GOLDEN.resolve())}, cache={"layers": None, "primary": 1024})

    def reused(token, **fields):
        stub = engine_pb2_grpc.EngineServiceStub(daemon.connect_engine(token))
        request = engine_pb2.GenerateRequest(prompt_tokens=EXPECTED["prompt"], max_new_tokens=2, **fields)
        *_, last = stub.Generate(request, timeout=120)
        assert last.report.HasField("reused_tokens") == last.report.HasField("reused_lower_tokens")
        return last.report.reused_tokens if last.report.HasField("reused_tokens") else None

    assert reused(ALICE) == 0
    assert reused(ALICE) > 0
    assert reused(BOB) == 0, "bob does not use alice's blocks"
    assert reused(OPERATOR) == 0
    assert reused(CAROL) is None, "carol shares, so the count would tell what the operator has asked"
    with Client(channel_of(daemon, CAROL)) as carol:
        assert carol.match(EXPECTED["prompt"]).matched_tokens > 0, "carol uses the operator's blocks"
    with pytest.raises(grpc.RpcError) as failure:
        reused(BOB, namespace={"tenant": "alice"})
    assert reason_of(call_status(failure.value)) == "PERMISSION_DENIED"


def test_what_a_tenant_that_shares_generates_is_within_its_quota(start_daemon):
    tokens = {"carol": CAROL, "dave": BOB}
    daemon = start_daemon(operator_token=OPERATOR, secrets={f"{name}.tokens": token for name, token in tokens.items()},
                          tenants=[{"name": "carol", "tokens_file": "carol.tokens", "shares": True, "primary_blocks": 8},
                                   {"name": "dave", "tokens_file": "dave.tokens", "shares": True}],
                          engine={"model_dir": str(GOLDEN.resolve())}, cache={"layers": None, "primary": 1024, "tokens_per_block": 16})

    def generate(token, new_tokens, first=5):
        stub = engine_pb2_grpc.EngineServiceStub(daemon.connect_engine(token))
        return stub.Generate(engine_pb2.GenerateRequest(prompt_tokens=[first, 6, 7], max_new_tokens=new_tokens), timeout=120)

    def held(name):
        (tenant,) = [tenant for tenant in daemon.admin.ListTenants(admin_pb2.ListTenantsRequest(), timeout=CALL_SECONDS).tenants
                     if tenant.name == name]
        return tenant.use[0].used_blocks

    with pytest.raises(grpc.RpcError) as failure:
        list(generate(CAROL, 200))
    assert reason_of(call_status(failure.value)) == "INVALID_COUNT" and "the quota of the tenant 'carol' is 8" in failure.value.details()
    running = [generate(CAROL, 110, first) for first in range(10, 16)]  # At its end each holds 8 blocks.
    most, generated = 0, 0
    for call in running:
        for response in call:
            generated += len(response.tokens)
            most = max(most, held("carol"))
    assert generated == 6 * 110
    assert 1 <= most <= 8
    *_, last = generate(BOB, 200)
    assert last.report.generated_tokens == 200, "carol's quota does not limit dave"
    assert held("carol") == held("dave") == 0, "cached blocks count for no tenant"


def test_calls_above_the_limit_are_refused_at_once(start_daemon):
    """But not KeepAlive, and not the operators' own methods."""
    daemon = start_daemon(server={"max_calls": 4})
    client = Client(daemon.channel)
    stub = events_pb2_grpc.EventServiceStub(daemon.channel)
    watches = [stub.Watch(events_pb2.WatchRequest()) for _ in range(4)]
    for watch in watches:
        next(watch)
    with pytest.raises(grpc.RpcError) as failure:
        client.stub.OpenSession(cache_pb2.OpenSessionRequest(), timeout=CALL_SECONDS)
    status = call_status(failure.value)
    assert (failure.value.code(), reason_of(status)) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "TOO_MANY_CALLS")
    retry = error_details_pb2.RetryInfo()
    assert any(detail.Unpack(retry) for detail in status.details) and retry.retry_delay.nanos > 0
    client.stub.KeepAlive(cache_pb2.KeepAliveRequest(session=client.session), timeout=CALL_SECONDS)
    assert daemon.status().subscribers == 4
    watches.pop().cancel()
    daemon.wait_until(lambda daemon: daemon.status().subscribers == 3)
    client.match([1])
    for watch in watches:
        watch.cancel()
    daemon.wait_until(lambda daemon: daemon.status().subscribers == 0)
    client.close()


def test_calls_above_the_connections_limit_wait_at_the_client(start_daemon):
    daemon = start_daemon(server={"max_calls_per_connection": 2})
    channel = daemon.connect()
    stub = events_pb2_grpc.EventServiceStub(channel)
    first, second = (stub.Watch(events_pb2.WatchRequest()) for _ in range(2))
    next(first), next(second)
    third = stub.Watch(events_pb2.WatchRequest())
    begun = threading.Event()
    waiter = threading.Thread(target=lambda: (next(third), begun.set()), daemon=True)
    waiter.start()
    assert daemon.status().subscribers == 2, "the third call has not reached the daemon; other connections still serve"
    first.cancel()
    assert begun.wait(CALL_SECONDS)
    waiter.join()
    second.cancel()
    third.cancel()


def pagodactl(daemon, *arguments, **environment):
    return subprocess.run([PAGODACTL, "--endpoint", f"unix:{daemon.unix_socket}", *arguments], capture_output=True, text=True,
                          timeout=60, check=False, env=environment)


def test_pagodactl_takes_its_token_from_a_file(guarded, tmp_path):
    daemon = guarded()
    token_file = tmp_path / "token"
    token_file.write_text(f"# mine\n{OPERATOR}\n")
    assert pagodactl(daemon, "--auth-token-file", token_file, "status").returncode == 0
    assert pagodactl(daemon, "status", PAGODA_TOKEN_FILE=str(token_file)).returncode == 0
    assert pagodactl(daemon, "--auth-token-file", token_file, "pins").returncode == 0
    nobody = pagodactl(daemon, "status")
    assert nobody.returncode == 1 and "UNAUTHENTICATED" in nobody.stderr and "PAGODA_TOKEN_FILE" in nobody.stderr
    token_file.write_text(ALICE)
    tenant = pagodactl(daemon, "--auth-token-file", token_file, "status")
    assert tenant.returncode == 1 and "PERMISSION_DENIED" in tenant.stderr
    token_file.write_text("\n")
    nothing = pagodactl(daemon, "--auth-token-file", token_file, "status")
    assert nothing.returncode == 1 and "no token" in nothing.stderr


def test_the_python_package_shows_its_token_in_every_call(guarded, tmp_path, monkeypatch):
    daemon = guarded()
    endpoint = f"unix:{daemon.unix_socket}"
    with pagoda.connect(endpoint, token=ALICE) as client, client.watch() as watch, client.sequence(range(9)) as sequence:
        assert sequence.describe().token_count == 9 and watch.epoch == client.epoch
        with pytest.raises(pagoda.PermissionDenied) as denied:
            client.status()
        assert denied.value.reason == "PERMISSION_DENIED"
    for token in (None, "a-stranger-0123456789"):
        with pytest.raises(pagoda.Unauthenticated):
            pagoda.connect(endpoint, token=token)
        with pytest.raises(pagoda.Unauthenticated):
            pagoda.watch(endpoint, token=token)
    token_file = tmp_path / "token"
    token_file.write_text(OPERATOR)
    monkeypatch.setenv("PAGODA_TOKEN_FILE", str(token_file))
    with pagoda.connect(endpoint) as client, pagoda.watch(endpoint):
        assert client.status().sessions == 1


def test_the_python_package_for_asyncio_shows_its_token_too(guarded):
    daemon = guarded()
    endpoint = f"unix:{daemon.unix_socket}"

    async def story():
        async with pagoda.aio.connect(endpoint, token=OPERATOR) as client, pagoda.aio.watch(endpoint, token=ALICE):
            assert (await client.status()).sessions == 1
        with pytest.raises(pagoda.Unauthenticated):
            await pagoda.aio.connect(endpoint)

    asyncio.run(story())


def test_a_tenant_does_not_read_what_a_slot_held_before(guarded):
    """Bob commits tokens as computed and writes nothing: the slots still hold alice's bytes."""
    daemon = guarded()
    endpoint, prompt = f"unix:{daemon.unix_socket}", list(range(100, 117))
    with pagoda.connect(endpoint, token=ALICE) as alice, alice.sequence(prompt) as sequence:
        for pool in alice.pools():
            pool.writable_array[:] = 7
        sequence.commit(computed=len(prompt))
        assert (sequence.materialize(0).keys == 7).all(), "her session has mapped the pools"
    with pagoda.connect(endpoint, token=BOB) as bob, bob.sequence(prompt) as sequence:
        sequence.commit(computed=len(prompt))
        with pytest.raises(pagoda.PermissionDenied, match="mapped"):
            sequence.materialize(0)
        assert (bob.pools()[0].writable_array == 7).all()
        assert (sequence.materialize(0).keys == 7).all(), "now he could read them in the pool too"
    with pagoda.connect(endpoint, token=OPERATOR) as operator, operator.sequence(prompt) as sequence:
        sequence.commit(computed=len(prompt))
        assert (sequence.materialize(0).keys == 7).all(), "an operator may read everything"


def test_a_token_does_not_leave_this_machine_in_plaintext():
    for endpoint in ("10.0.0.1:7070", "daemon.example.org:7070", "127.evil.example.org:7070", "dns:///127.0.0.1.example.org:1"):
        with pytest.raises(ValueError, match="plaintext"):
            pagoda.connect(endpoint, token=ALICE)
        ended = subprocess.run([PAGODACTL, "--endpoint", endpoint, "--auth-token-file", "/dev/stdin", "status"], input=ALICE, text=True,
                               capture_output=True, timeout=60, check=False)
        assert ended.returncode == 1 and "plaintext" in ended.stderr, ended
