"""A token that is removed from its file promptly ends the sessions and streams that were opened
with it. Those of other tokens go on."""

import contextlib
import json
import mmap
import os
import queue
import signal
import socket
import struct
import threading
import time

import grpc
import pytest
from google.rpc import status_pb2
from pagoda_client import Client, OperationError, ask_to_map, authorized, call_status, reason_of
from pagoda_daemon import CALL_SECONDS
from pagoda.v1 import admin_pb2, admin_pb2_grpc, cache_pb2, cache_pb2_grpc, engine_pb2, engine_pb2_grpc, events_pb2, events_pb2_grpc, mapping_pb2
from smg.grpc import kv_events_pb2
from test_generate import GOLDEN

OLD, NEW, OPERATOR = "old-token-of-alice-0123456789", "new-token-of-alice-0123456789", "token-of-the-operator-0123456789"
# The daemon reads the files every second. The machine can be busy with other tests.
MAX_SECONDS = 10
LONG_TOKENS = 3500
SUBSCRIBE = "/vllm.grpc.engine.VllmEngine/SubscribeKvEvents"


@pytest.fixture
def daemon(start_daemon):
    """A daemon whose tenant alice has two tokens, with an engine. The default lease is the one of
    the engine's sessions."""
    daemon = start_daemon(operator_token=OPERATOR, secrets={"alice.tokens": f"{OLD}\n{NEW}"},
                          tenants=[{"name": "alice", "tokens_file": "alice.tokens"}],
                          events={"smg": {"enabled": True}}, server={"http_address": "127.0.0.1:0"}, sessions={"default_lease": "2s"},
                          cache={"layers": None, "primary": 2048}, engine={"model_dir": str(GOLDEN)})
    yield daemon


class Stream:
    """A stream that has begun, read by a thread of its own until it ends: `reason` is why."""

    def __init__(self, call, first=next):
        self.call = call
        first(call)
        self.ended = threading.Event()
        self.reason = None
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def read(self):
        try:
            for _ in self.call:
                pass
            self.reason = "OK"
        except grpc.RpcError as error:
            self.reason = reason_of(call_status(error)) if error.code() != grpc.StatusCode.CANCELLED else "CANCELLED"
        self.ended.set()


def open_session(channel):
    """A Session stream that has answered a batch and is idle; its queue takes further requests."""
    session = cache_pb2_grpc.CacheServiceStub(channel).OpenSession(cache_pb2.OpenSessionRequest(lease_ms=2000), timeout=CALL_SECONDS).session
    requests = queue.Queue()
    requests.put(cache_pb2.SessionRequest(session=session, batch_id=1))
    return Stream(cache_pb2_grpc.CacheServiceStub(channel).Session(iter(requests.get, None)))


def open_watch(channel):
    return Stream(events_pb2_grpc.EventServiceStub(channel).Watch(events_pb2.WatchRequest()))


def open_smg(channel):
    call = channel.unary_stream(SUBSCRIBE, request_serializer=kv_events_pb2.SubscribeKvEventsRequest.SerializeToString,
                                response_deserializer=kv_events_pb2.KvEventBatch.FromString)
    return Stream(call(kv_events_pb2.SubscribeKvEventsRequest()), first=lambda stream: stream.initial_metadata())


def open_generation(channel):
    request = engine_pb2.GenerateRequest(prompt_tokens=range(1, 9), max_new_tokens=LONG_TOKENS)
    return Stream(engine_pb2_grpc.EngineServiceStub(channel).Generate(request))


class Rings(Stream):
    """A session's pair of rings, without batches. wire/ring/ring_layout.h: the ending is at 320."""

    def __init__(self, channel):
        stub = cache_pb2_grpc.CacheServiceStub(channel)
        # A pair does not hold the lease.
        self.opened = stub.OpenSession(cache_pb2.OpenSessionRequest(lease_ms=60_000), timeout=CALL_SECONDS)
        request = mapping_pb2.MapPoolsRequest(session=self.opened.session, rings=mapping_pb2.RingOptions())
        response, (memory, wake) = ask_to_map(self.opened.map_socket, request)
        assert response.rings.version == 2
        self.memory = mmap.mmap(memory, 4096)
        os.close(memory)
        self.socket = socket.socket(fileno=wake)
        super().__init__(self, first=lambda _: None)

    def cancel(self):
        self.socket.shutdown(socket.SHUT_RDWR)

    def read(self):
        while self.socket.recv(64):
            pass
        (state,) = struct.unpack_from("<I", self.memory, 320)
        # 0: open; 1: ended without a reason, because this side has closed it.
        self.reason = reason_of(status_pb2.Status.FromString(self.memory[324:324 + state - 1])) if state > 1 else "CANCELLED"
        self.ended.set()


class HttpStream(Stream):
    """A generation over HTTP; the reason is that of its last event."""

    def __init__(self, daemon, token):
        body = json.dumps({"model": "qwen3_tiny", "prompt": [1, 2, 3], "max_tokens": LONG_TOKENS, "stream": True, "ignore_eos": True})
        host, port = daemon.engine_http_address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=60)
        self.socket.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
                            f"Content-Length: {len(body)}\r\n\r\n{body}".encode())
        super().__init__(self.socket, first=lambda one: one.recv(1))

    def read(self):
        text = b""
        with contextlib.suppress(OSError):
            while piece := self.socket.recv(65536):
                text += piece
        self.reason = "UNAUTHENTICATED" if b"invalid_api_key" in text else "OK"
        self.ended.set()


def open_all(daemon, token):
    channel = authorized(daemon.connect(), token)
    return {"Session": open_session(channel), "Watch": open_watch(channel), "SubscribeKvEvents": open_smg(channel),
            "rings": Rings(channel)}


def revoke(daemon):
    daemon.write_secret("alice.tokens", NEW)
    return time.monotonic()


def wait_for_the_end_of(streams, start):
    took = {}
    for name, stream in streams.items():
        assert stream.ended.wait(max(0, start + MAX_SECONDS - time.monotonic())), f"{name} does not end"
        took[name] = time.monotonic() - start
    print("ended after", {name: f"{seconds:.2f} s" for name, seconds in took.items()})
    assert {name: stream.reason for name, stream in streams.items()} == {name: "UNAUTHENTICATED" for name in streams}


def test_open_streams_end_with_their_token_and_others_go_on(daemon):
    revoked, kept, operators = (open_all(daemon, token) for token in (OLD, NEW, OPERATOR))
    wait_for_the_end_of(revoked, revoke(daemon))
    assert not any(stream.ended.is_set() for stream in (*kept.values(), *operators.values()))
    # The other streams still get events.
    with Client(authorized(daemon.connect(), NEW)) as client:
        client.cache(1, range(9))
    with pytest.raises(grpc.RpcError) as refusal:
        Client(authorized(daemon.connect(), OLD))
    assert reason_of(call_status(refusal.value)) == "UNAUTHENTICATED"
    for stream in (*kept.values(), *operators.values()):
        stream.call.cancel()
        assert stream.ended.wait(CALL_SECONDS) and stream.reason == "CANCELLED"
    operator = admin_pb2_grpc.AdminServiceStub(authorized(daemon.connect(), OPERATOR))
    for streams in (revoked, kept, operators):
        session = streams["rings"].opened.session
        operator.EndSession(admin_pb2.EndSessionRequest(session_id=session.session_id), timeout=CALL_SECONDS)


def test_generations_end_with_their_token(daemon):
    streams = {"Generate": open_generation(daemon.connect_engine(OLD)), "HTTP": HttpStream(daemon, OLD)}
    wait_for_the_end_of(streams, revoke(daemon))
    daemon.wait_until(lambda daemon: daemon.engine_metric("running_requests") == 0)
    daemon.wait_until(lambda daemon: daemon.told("status", admin_pb2.GetStatusResponse()).engine.running_requests == 0)
    kept = Stream(engine_pb2_grpc.EngineServiceStub(daemon.connect_engine(NEW)).Generate(
        engine_pb2.GenerateRequest(prompt_tokens=range(1, 9), max_new_tokens=4)))
    assert kept.ended.wait(CALL_SECONDS) and kept.reason == "OK"
    # The engine could not close the session that it had opened with the old token. What was not yet
    # cached of its blocks can stay in quarantine until the engine's process ends.
    os.kill(daemon.engine_pid(), signal.SIGKILL)


def test_a_subscriber_that_reads_nothing_gets_nothing_more(daemon):
    watch = events_pb2_grpc.EventServiceStub(authorized(daemon.connect(), OLD)).Watch(events_pb2.WatchRequest())
    next(watch)
    revoke(daemon)
    daemon.wait_until(lambda daemon: daemon.log.read_text().count("tokens: ") >= 1)
    time.sleep(2)
    with Client(authorized(daemon.connect(), NEW)) as client:
        client.cache(1, range(9))
    with pytest.raises(grpc.RpcError) as end:
        for response in watch:
            assert not response.events, "events after the token was revoked"
    assert reason_of(call_status(end.value)) == "UNAUTHENTICATED"


def maps(client):
    """What each access comes to: "OK", or the reason of the refusal."""
    answers = []
    for access in (mapping_pb2.MAP_ACCESS_READ, mapping_pb2.MAP_ACCESS_READ_WRITE):
        try:
            _, descriptors = client.map_pools(access)
            for descriptor in descriptors:
                os.close(descriptor)
            answers.append("OK")
        except OperationError as refusal:
            answers.append(refusal.reason)
    return answers


def test_nobody_maps_for_a_session_whose_token_is_gone(daemon):
    """The map socket asks for the session's token alone, and the session lives on its lease."""
    clients = {token: Client(authorized(daemon.connect(), token), lease_ms=60_000) for token in (OLD, NEW, OPERATOR)}
    assert [maps(client) for client in clients.values()] == 3 * [["OK", "OK"]]
    revoke(daemon)
    daemon.wait_until(lambda daemon: maps(clients[OLD]) == ["UNAUTHENTICATED", "UNAUTHENTICATED"])
    assert daemon.status().sessions == 4, "the three clients' sessions and the engine's"
    assert maps(clients[NEW]) == maps(clients[OPERATOR]) == ["OK", "OK"]

    # The tenant's client continues its session with the new token, as after any change of tokens.
    stub = cache_pb2_grpc.CacheServiceStub(authorized(daemon.connect(), NEW))
    stub.KeepAlive(cache_pb2.KeepAliveRequest(session=clients[OLD].session), timeout=CALL_SECONDS)
    assert maps(clients[OLD]) == ["OK", "OK"]
    clients[OLD].stub = stub
    for client in clients.values():
        client.close()
