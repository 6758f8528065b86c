"""Hostile bodies over HTTP: slow ones, ones without a token, and JSON that takes much memory.

Each attack costs the attacker little. The innocent tenant's generations must end beside it.
"""

import contextlib
import json
import socket
import threading
import time

import pytest
from test_header_flood import cpu_seconds
from test_hostile_wire import resident_bytes
from test_openai import complete, post, start  # start is a fixture.

A, B, OPERATOR = (f"token-of-{name}-0123456789" for name in ("a", "b", "the-operator"))
SLOW_CLIENTS, SLOW_BYTES, SLOW_INTERVAL = 70, 10_000_000, 0.5
# HttpServer::kRequestTime is 10 s. The machine can be busy with other tests.
PATIENCE_SECONDS = 60
# A generation takes some milliseconds. Without the event loop none ended beside slow bodies.
GENERATIONS, GENERATION_SECONDS = 10, 10
OBJECTS = 160_000  # 0.5 MB, which took 12.5 s of processor time.
OBJECTS_CPU_SECONDS = 3.0
LARGE_BODIES, LARGE_BYTES = 8, 14 << 20
# All bodies and their values may take 256 MiB (16 times server.max_message_bytes).
MAX_GROWTH_BYTES, KEPT_BYTES = 640 << 20, 100 << 20


@pytest.fixture
def daemon(start):
    return start(operator_token=OPERATOR, secrets={"a.tokens": A, "b.tokens": B},
                 tenants=[{"name": "a", "tokens_file": "a.tokens"}, {"name": "b", "tokens_file": "b.tokens"}])


def begin_body(daemon, token):
    """A connection with the head of a request whose body does not come."""
    host, port = daemon.engine_http_address.rsplit(":", 1)
    client = socket.create_connection((host, int(port)), timeout=PATIENCE_SECONDS)
    head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {SLOW_BYTES}\r\n"
    client.sendall((head + (f"Authorization: Bearer {token}\r\n" if token else "") + "\r\n{").encode())
    return client


@contextlib.contextmanager
def slow_bodies(daemon, token):
    """Clients that send a byte each half second, until the engine hangs up."""
    clients, done = [begin_body(daemon, token) for _ in range(SLOW_CLIENTS)], threading.Event()

    def drip():
        while not done.wait(SLOW_INTERVAL):
            for client in clients:
                with contextlib.suppress(OSError):
                    client.send(b" ")

    dripping = threading.Thread(target=drip)
    dripping.start()
    try:
        yield clients
    finally:
        done.set()
        dripping.join()
        for client in clients:
            client.close()


def statuses(clients):
    """The status of each client's answer, after which the engine has closed the connection."""
    codes = []
    for client in clients:
        answer = b""
        with contextlib.suppress(ConnectionError):  # The client's last bytes crossed the end.
            while piece := client.recv(65536):
                answer += piece
        codes.append(int(answer.split(b" ")[1]))
    return codes


def generate(daemon):
    """The longest time of some generations of the innocent tenant."""
    longest = 0
    for number in range(GENERATIONS):
        start_time = time.monotonic()
        complete(daemon, token=B, prompt=[5, number], max_tokens=2)
        longest = max(longest, time.monotonic() - start_time)
    return longest


def test_bodies_without_a_token_are_refused_before_they_come(daemon):
    with slow_bodies(daemon, None) as clients:
        longest = generate(daemon)
        assert statuses(clients) == [401] * SLOW_CLIENTS
    print(f"longest generation: {longest:.3f} s")
    assert longest < GENERATION_SECONDS


def test_slow_bodies_of_a_tenant_take_its_share_for_a_time(daemon):
    with slow_bodies(daemon, A) as clients:
        longest = generate(daemon)
        codes = statuses(clients)
    print(f"longest generation: {longest:.3f} s")
    assert longest < GENERATION_SECONDS
    assert set(codes) == {408, 429} and codes.count(408) < SLOW_CLIENTS / 2
    assert complete(daemon, token=A, prompt=[5], max_tokens=1)


def objects(number):
    return '{"model":"tiny","prompt":[1],"max_tokens":1,"metadata":[{}' + ",{}" * number + "]}"


def test_many_objects_take_milliseconds(daemon):
    engine = daemon.engine_process()
    before = cpu_seconds(engine)
    assert post(daemon, "/v1/completions", objects(OBJECTS), A)[0] == 200
    assert post(daemon, "/v1/chat/completions", objects(OBJECTS), A)[0] == 400
    spent = cpu_seconds(engine) - before
    print(f"{spent:.2f} s of processor time")
    assert spent < OBJECTS_CPU_SECONDS


def test_the_memory_of_large_bodies_is_bounded_and_given_back(daemon):
    generate(daemon)
    engine = daemon.engine_process()
    before, largest, done = resident_bytes(engine), 0, threading.Event()

    def watch():
        nonlocal largest
        while not done.wait(0.01):
            largest = max(largest, resident_bytes(engine))

    codes = []
    body = objects(LARGE_BYTES // 3)
    watching = threading.Thread(target=watch)
    posting = [threading.Thread(target=lambda: codes.append(post(daemon, "/v1/completions", body, A)[0])) for _ in range(LARGE_BODIES)]
    for thread in [watching, *posting]:
        thread.start()
    longest = generate(daemon)
    for thread in posting:
        thread.join()
    done.set()
    watching.join()
    print(f"{(largest - before) >> 20} MiB more at most, longest generation {longest:.3f} s, {sorted(codes)}")
    assert set(codes) <= {413, 429} and len(codes) == LARGE_BODIES
    assert largest - before < MAX_GROWTH_BYTES
    daemon.wait_until(lambda _: resident_bytes(engine) < before + KEPT_BYTES)
    # A text of this size is served: its parts take less than the limit.
    text = json.dumps({"model": "tiny", "prompt": "a " * (LARGE_BYTES // 2), "max_tokens": 1})
    assert b"INVALID" in post(daemon, "/v1/completions", text, A)[2].encode().upper()
