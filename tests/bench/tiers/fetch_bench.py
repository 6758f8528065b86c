"""Measures what a store is worth to the bundled engine, and what a stalled store costs.
`deploy/bench.sh store` runs it.

    /usr/bin/python3 tests/bench/tiers/fetch_bench.py PAGODAD [--smoke] [ID...]

PAGODAD: the built program, with pagodactl beside it and the Python package where the build has it.
Starts daemons and a redis-server on loopback. Prints one JSON object a line for each figure whose
id begins with one of the IDs (all, without IDs): medians of the rounds. The figures:

    fetch_ttft
        Milliseconds to the first token of a prompt of 2,000 tokens, by the bundled engine with a
        Qwen3-0.6B of random weights (1.2 GB of temporary files), whose prompt is fetched from the
        store. The yardstick is the daemon that computed the prompt.
    memory_p99_store_stalled
        Microseconds until a prefix of 16 blocks is onboarded from a second tier in memory, 99th
        percentile, seen by a client, while a store says that it has each block and sends none:
        four fetches hold 16 blocks each and wait, at any time. The yardstick is the same daemon
        with nothing to fetch.
"""

import argparse
import array
import contextlib
import json
import multiprocessing
import pathlib
import random
import shutil
import signal
import socket
import socketserver
import statistics
import subprocess
import sys
import tempfile
import time

from figure import show

ROUNDS = 5
PROMPT = 2000
ONBOARDS = 400  # The onboards of one side in a round.
BLOCKS, TOKENS = 16, 16
FETCHERS = 4


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(port, process):
    deadline = time.monotonic() + 60
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            assert process.poll() is None and time.monotonic() < deadline, "a server does not start"
            time.sleep(0.05)


@contextlib.contextmanager
def running(arguments, port, **options):
    process = subprocess.Popen(arguments, **options)
    try:
        wait_for(port, process)
        yield process
    finally:
        process.send_signal(signal.SIGCONT)
        process.terminate()
        process.wait()


@contextlib.contextmanager
def redis(folder):
    port = free_port()
    with running(["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", folder], port,
                 stdout=subprocess.DEVNULL) as process:
        yield process, port


@contextlib.contextmanager
def pagodad(binaries, folder, name, config):
    """The endpoint of a daemon. It, and the engine if there is one, are ready."""
    port = free_port()
    config = {"server": {"unix_socket": f"{folder}/{name}.sock", "grpc_address": f"127.0.0.1:{port}", "http_address": ""}, **config}
    if "engine" in config:
        config["engine"] = {"unix_socket": f"{folder}/{name}-engine.sock", "grpc_address": "", "http_address": "", **config["engine"]}
    path, log_path = pathlib.Path(folder, f"{name}.yaml"), pathlib.Path(folder, f"{name}.log")
    path.write_text(json.dumps(config))  # JSON is YAML.
    with open(log_path, "w") as log, running([str(binaries / "pagodad"), "--config", str(path)], port, stdout=log, stderr=log) as process:
        deadline = time.monotonic() + 60
        while "pagodad is ready" not in log_path.read_text():
            assert process.poll() is None and time.monotonic() < deadline, log_path.read_text()
            time.sleep(0.05)
        yield f"127.0.0.1:{port}"


def write_model(folder, smoke):
    """A Qwen3 of random weights, as tests/bench/engine/random_model.h describes it."""
    layers, hidden, inner, heads, kv_heads, head, vocabulary = (2, 128, 256, 4, 2, 32, 512) if smoke else (28, 1024, 3072, 16, 8, 128, 151_936)
    tensors = {"model.embed_tokens.weight": [vocabulary, hidden], "model.norm.weight": [hidden]}
    for layer in range(layers):
        of = {"input_layernorm": [hidden], "post_attention_layernorm": [hidden], "self_attn.q_norm": [head], "self_attn.k_norm": [head],
              "self_attn.q_proj": [heads * head, hidden], "self_attn.k_proj": [kv_heads * head, hidden],
              "self_attn.v_proj": [kv_heads * head, hidden], "self_attn.o_proj": [hidden, heads * head],
              "mlp.gate_proj": [inner, hidden], "mlp.up_proj": [inner, hidden], "mlp.down_proj": [hidden, inner]}
        tensors |= {f"model.layers.{layer}.{name}.weight": shape for name, shape in of.items()}
    pathlib.Path(folder, "config.json").write_text(json.dumps({
        "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_act": "silu", "attention_bias": False, "eos_token_id": 0,
        "head_dim": head, "hidden_size": hidden, "intermediate_size": inner, "max_position_embeddings": 40_960,
        "num_attention_heads": heads, "num_hidden_layers": layers, "num_key_value_heads": kv_heads, "rms_norm_eps": 1e-6,
        "rope_scaling": None, "rope_theta": 1_000_000, "tie_word_embeddings": True, "vocab_size": vocabulary}))
    header, offset = {}, 0
    sizes = {name: shape[0] * (shape[1] if len(shape) == 2 else 1) * 2 for name, shape in tensors.items()}
    for name, shape in tensors.items():
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, offset + sizes[name]]}
        offset += sizes[name]
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    rng = random.Random(1)
    row = array.array("H", (0x3C00 | (rng.getrandbits(16) & 0x80FF) for _ in range(1 << 18))).tobytes()
    ones = array.array("H", [0x3F80] * max(hidden, head)).tobytes()
    with open(pathlib.Path(folder, "model.safetensors"), "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name, shape in tensors.items():
            source = ones if len(shape) == 1 else row
            for begin in range(0, sizes[name], len(source)):
                file.write(source[:min(len(source), sizes[name] - begin)])
    return vocabulary


def generate(binaries, endpoint, prompt):
    """(milliseconds to the first token, reused tokens)."""
    run = subprocess.run([str(binaries / "pagodactl"), "--endpoint", endpoint, "-o", "json", "generate", "--prompt-file", "-", "--max-new-tokens", "1"],
                         input=" ".join(map(str, prompt)), stdout=subprocess.PIPE, check=True, text=True)
    report = json.loads(run.stdout)["report"]
    return float(report["time_to_first_token"].rstrip("s")) * 1e3, report["reused_tokens"]


def fetch_ttft(binaries, smoke):
    length = 100 if smoke else PROMPT
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder, redis(folder) as (_, port):
        vocabulary = write_model(folder, smoke)
        config = {"cache": {"tokens_per_block": 32, "primary": 80}, "engine": {"model_dir": folder},
                  "fetch": {"base": "10s"}, "store": {"servers": [f"127.0.0.1:{port}"], "publish": {"min_uses": 0, "delay": "0s"}}}
        rng = random.Random(2)
        fetched, computed = [], []
        with pagodad(binaries, folder, "first", config) as first, pagodad(binaries, folder, "second", config) as second:
            for _ in range(1 if smoke else ROUNDS):
                prompt = [rng.randrange(1, vocabulary) for _ in range(length)]
                milliseconds, reused = generate(binaries, first, prompt)
                assert reused == 0, reused
                computed.append(milliseconds)
                whole = (length - 1) // 32
                deadline = time.monotonic() + 60
                while stored(port) < whole * (len(computed)):
                    assert time.monotonic() < deadline, "the prompt is not published"
                    time.sleep(0.05)
                milliseconds, reused = generate(binaries, second, prompt)
                assert reused == whole * 32, reused
                fetched.append(milliseconds)
    show("fetch_ttft", statistics.median(fetched), "ms", "computing the prompt", statistics.median(computed))


def stored(port):
    return int(subprocess.run(["redis-cli", "-p", str(port), "dbsize"], stdout=subprocess.PIPE, check=True, text=True).stdout)


class StallingStore(socketserver.StreamRequestHandler):
    """Speaks the protocol of Redis. While `stalls` is set, each block exists and no value comes."""

    stalls = None

    def handle(self):
        while line := self.rfile.readline():
            words = []
            for _ in range(int(line[1:])):
                words.append(self.rfile.read(int(self.rfile.readline()[1:])))
                self.rfile.readline()
            answer = self.answer_to(words[0].upper())
            if answer is not None:
                self.wfile.write(answer)

    def answer_to(self, command):
        if command == b"PING":
            return b"+PONG\r\n"
        if command == b"EXISTS":
            return b":1\r\n" if self.stalls.is_set() else b":0\r\n"
        if command in (b"GET", b"SET"):
            return None if self.stalls.is_set() else b"+OK\r\n" if command == b"SET" else b"$-1\r\n"
        return b"-ERR unknown command\r\n"


def serve_store(port, stalls):
    StallingStore.stalls = stalls
    socketserver.ThreadingTCPServer.allow_reuse_address = True
    with socketserver.ThreadingTCPServer(("127.0.0.1", port), StallingStore) as server:
        server.daemon_threads = True
        server.serve_forever()


@contextlib.contextmanager
def stalling_store(processes):
    """(port, the event that makes it stall)"""
    port, stalls = free_port(), processes.Event()
    process = processes.Process(target=serve_store, args=(port, stalls), daemon=True)
    process.start()
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                assert process.is_alive() and time.monotonic() < deadline, "the store does not start"
                time.sleep(0.05)
        yield port, stalls
    finally:
        process.terminate()
        process.join()


def p99(values):
    return sorted(values)[int(len(values) * 0.99)]


def onboard(client, prompts, count, rng):
    """Microseconds until the blocks of a prompt, which lie in the second tier, are ready."""
    took = []
    for _ in range(count):
        prompt = rng.choice(prompts)
        client.offload(prompt)
        begun = time.perf_counter()
        with client.sequence(prompt) as sequence:
            sequence.wait_ready()
            took.append((time.perf_counter() - begun) * 1e6)
            assert sequence.matched_tokens >= (BLOCKS - 1) * TOKENS
    return took


def memory_p99(binaries, package, smoke):
    sys.path.insert(0, str(package))
    import pagoda

    rng = random.Random(3)
    config = {"cache": {"tokens_per_block": TOKENS, "primary": 256, "secondary": 1024, "primary_memory": "host", "model": {"name": "bench"},
                        "layers": {"count": 16, "num_kv_heads": 8, "head_dim": 64}},
              "fetch": {"base": "300ms", "per_thousand_tokens": "0s"}}
    prompts = [[rng.randrange(50_000) for _ in range(BLOCKS * TOKENS + 1)] for _ in range(8)]
    # Other processes, so that they do not take turns with this one.
    processes = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder, stalling_store(processes) as (port, stalls):
        config["store"] = {"servers": [f"127.0.0.1:{port}"]}
        with pagodad(binaries, folder, "daemon", config) as endpoint, pagoda.connect(endpoint) as client:
            for prompt in prompts:
                with client.sequence(prompt) as sequence:
                    sequence.commit(computed=len(prompt))
            count = 20 if smoke else ONBOARDS
            onboard(client, prompts, 20, rng)
            idle, stalled = [], []
            for _ in range(1 if smoke else ROUNDS):
                idle.append(p99(onboard(client, prompts, count, rng)))
                stalls.set()
                begun, ends = processes.Barrier(FETCHERS + 1), processes.Event()
                waiters = [processes.Process(target=fetch_on, args=(package, endpoint, begun, ends)) for _ in range(FETCHERS)]
                for waiter in waiters:
                    waiter.start()
                begun.wait()
                stalled.append(p99(onboard(client, prompts, count, rng)))
                ends.set()
                for waiter in waiters:
                    waiter.join()
                    assert waiter.exitcode == 0
                stalls.clear()
                time.sleep(1)
    show("memory_p99_store_stalled", statistics.median(stalled), "us", "nothing to fetch", statistics.median(idle))


def fetch_on(package, endpoint, begun, ends):
    sys.path.insert(0, str(package))
    import pagoda

    rng = random.Random()
    with pagoda.connect(endpoint) as client:
        begun.wait()
        while not ends.is_set():
            prompt = [rng.randrange(50_000) for _ in range(BLOCKS * TOKENS + 1)]
            fetched = client.fetch_prefix(prompt)
            assert fetched.outcome is pagoda.FetchOutcome.FAILED, fetched


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=pathlib.Path, help="pagodad")
    parser.add_argument("ids", nargs="*", help="measure only figures whose ids begin with one of these")
    parser.add_argument("--smoke", action="store_true", help="one small round; its numbers say nothing")
    args = parser.parse_args()
    if shutil.which("redis-server") is None:
        sys.exit("fetch_bench.py: redis-server is not installed")

    def wanted(figure):
        return not args.ids or figure.startswith(tuple(args.ids))

    if wanted("fetch_ttft"):
        fetch_ttft(args.program.parent, args.smoke)
    if wanted("memory_p99_store_stalled"):
        memory_p99(args.program.parent, args.program.parent.parent / "python", args.smoke)


if __name__ == "__main__":
    main()
