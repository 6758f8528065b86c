"""Clients of the HTTP port that read slowly, and long texts: neither takes what the others need."""

import json
import os
import pathlib
import re
import socket
import threading
import time

from test_openai import EXPECTED, SECONDS, complete, daemon, post, start  # daemon and start are fixtures.

SLOW_TOKENS = 600
# ReadingPace::kPatience is 10 s. The machine can be busy with other tests.
MAX_PATIENCE_SECONDS = 45
READ_BYTES, READ_INTERVAL = 16384, 0.25  # Half of ReadingPace::kBytesPerSecond. The pauses are too short to count as silence.


def slow_answer(daemon, tokens):
    """The socket of an answer of megabytes that is not read yet. Small segments keep the engine's
    side of it small, as on a real network. Loopback's own segments take megabytes, and then the
    engine has written the whole answer at once."""
    body = json.dumps({"model": "tiny", "prompt": EXPECTED["prompt"], "max_tokens": tokens, "ignore_eos": True, "n": 8, "logprobs": 20})
    host, port = daemon.engine_http_address.rsplit(":", 1)
    client = socket.socket()
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 1000)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 15)
    client.settimeout(SECONDS)
    client.connect((host, int(port)))
    client.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
    return client


def trickle(clients, done):
    """Reads 200 KB a second from each: too slowly to finish one, and fast enough not to be given
    up."""
    while not done.is_set():
        for client in list(clients):
            try:
                client.recv(16384)
            except OSError:
                pass
        time.sleep(0.08)


def test_slow_readers_leave_the_other_threads_alone(start):
    daemon = start(server={"max_http_generations": 1})
    clients, done = [], threading.Event()
    reader = threading.Thread(target=trickle, args=(clients, done))
    reader.start()
    codes = []
    try:
        # The first answer is still being read when the second is generated, even on a busy machine.
        for tokens in (3 * SLOW_TOKENS, SLOW_TOKENS, SLOW_TOKENS):
            client = slow_answer(daemon, tokens)
            codes.append(client.recv(12).split(b" ")[1])
            clients.append(client)
        # The first answer is read beside the generations. The second finds no place beside them,
        # and keeps a generation's place until it is read.
        assert codes == [b"200", b"200", b"429"]
        assert daemon.engine_http("/metrics")[0] == 200
    finally:
        done.set()
        reader.join()
        for client in clients:
            client.close()
    daemon.wait_until(lambda daemon: post(daemon, "/v1/completions", {"model": "tiny", "prompt": "a", "max_tokens": 1})[0] == 200)


def test_a_reader_that_is_too_slow_is_given_up(daemon):
    with slow_answer(daemon, 2 * SLOW_TOKENS) as client:
        text = client.recv(4096)
        length = int(re.search(rb"Content-Length: (\d+)", text)[1])
        start_time, got = time.monotonic(), len(text)
        try:
            while piece := client.recv(READ_BYTES):
                got += len(piece)
                assert time.monotonic() < start_time + MAX_PATIENCE_SECONDS, f"the engine still writes, after {got} of {length} bytes"
                time.sleep(READ_INTERVAL)
        except ConnectionError:
            pass
    print(f"{got} of {length} bytes in {time.monotonic() - start_time:.0f} s")
    assert got < length


def cpu_by_thread(process):
    """{thread's name: seconds of processor time}, those of one name added up."""
    spent = {}
    for task in pathlib.Path(f"/proc/{process.pid}/task").iterdir():
        head, _, rest = (task / "stat").read_text().rpartition(")")
        name, fields = head.partition("(")[2], rest.split()
        spent[name] = spent.get(name, 0) + (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return spent


def test_texts_are_not_tokenised_on_https_threads(daemon):
    complete(daemon, prompt="warm", max_tokens=1)
    engine = daemon.engine_process()
    before = cpu_by_thread(engine)
    text = "The quick brown fox jumps over the lazy dog, again and again. " * 40000
    threads = [threading.Thread(target=post, args=(daemon, "/v1/completions", {"model": "tiny", "prompt": text, "max_tokens": 1}))
               for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    spent = {name: seconds - before.get(name, 0) for name, seconds in cpu_by_thread(engine).items()}
    http = sum(seconds for name, seconds in spent.items() if name.startswith("pagoda-http"))
    print({name: round(seconds, 2) for name, seconds in spent.items()})
    assert sum(spent.values()) > 0.2, "the texts are too short to show anything"
    assert http < sum(spent.values()) / 3
