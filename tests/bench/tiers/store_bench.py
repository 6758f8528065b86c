"""Compares the store's client with redis-benchmark and with hiredis, in turns. `deploy/bench.sh
store` runs it.

    /usr/bin/python3 tests/bench/tiers/store_bench.py STORE_BENCH [--smoke] [ID...]

Starts a redis-server on loopback, without persistence. Prints one JSON object a line for each
figure whose id begins with one of the IDs (all, without IDs): medians of the rounds. Without
redis-benchmark or hiredis their numbers are null. All sides use 256 keys. The figures:

    redis_get_*, redis_put_*
        GB/s of blocks into shared memory and out of it, verified, over two connections with 16
        commands in flight on each. redis-benchmark has two connections and -P 8. It does not look
        at the values.
    redis_get_cpu_*, redis_put_cpu_*
        CPU seconds of the client for a GB. For gets the comparison is hiredis: 8 commands in flight
        on one connection, and one copy of each value, which is not verified. redis-benchmark is the
        comparison for puts.
"""

import argparse
import json
import re
import resource
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

from figure import show

BLOCKS = {"1m": 1 << 20, "128k": 128 << 10}
KEYS = 256
ROUND_BYTES = 4 << 30
SMOKE_BYTES = 64 << 20
ROUNDS = 5


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start_server(folder):
    port = free_port()
    server = subprocess.Popen(["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", folder],
                              stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 10
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return server, port
        except OSError:
            assert server.poll() is None and time.monotonic() < deadline, "redis-server does not start"
            time.sleep(0.05)


def our_round(program, port, block, count):
    run = subprocess.run([program, str(port), str(block), str(count), str(KEYS)], stdout=subprocess.PIPE, check=True, text=True)
    return {line["figure"]: line for line in map(json.loads, run.stdout.splitlines())}


def redis_benchmark(port, block, count, command):
    """GB/s, and CPU seconds a GB."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run = subprocess.run(["redis-benchmark", "-p", str(port), "-P", "8", "-c", "2", "-r", str(KEYS), "-d", str(block), "-n", str(count),
                          "-t", command, "--csv"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    rate = float(re.search(rf'^"{command.upper()}","([\d.]+)"', run.stdout, re.MULTILINE)[1])
    cpu = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return {"gb_per_s": rate * block / 1e9, "cpu_s_per_gb": cpu / (block * count / 1e9)}


def measure(args, name, block):
    count = (SMOKE_BYTES if args.smoke else ROUND_BYTES) // block
    ours, theirs = [], []
    with tempfile.TemporaryDirectory() as folder:
        server, port = start_server(folder)
        try:
            for _ in range(1 if args.smoke else ROUNDS):
                ours.append(our_round(args.program, port, block, count))
                if shutil.which("redis-benchmark"):
                    theirs.append({command: redis_benchmark(port, block, count, command) for command in ("set", "get")})
                # The server's memory does not grow: all sides use the same number of keys.
                subprocess.run(["redis-cli", "-p", str(port), "flushall"], stdout=subprocess.DEVNULL, check=True)
        finally:
            server.kill()
            server.wait()

    def median(rounds, *path):
        values = []
        for each in rounds:
            for key in path:
                each = each.get(key) if each else None
            if each:
                values.append(each)
        return statistics.median(values) if values else None

    figures = [
        (f"redis_get_{name}", median(ours, "get", "gb_per_s"), "GB/s", "redis-benchmark -P 8", median(theirs, "get", "gb_per_s")),
        (f"redis_put_{name}", median(ours, "put", "gb_per_s"), "GB/s", "redis-benchmark -P 8", median(theirs, "set", "gb_per_s")),
        (f"redis_get_cpu_{name}", median(ours, "get", "cpu_s_per_gb"), "s/GB", "hiredis", median(ours, "hiredis_get", "cpu_s_per_gb")),
        (f"redis_put_cpu_{name}", median(ours, "put", "cpu_s_per_gb"), "s/GB", "redis-benchmark", median(theirs, "set", "cpu_s_per_gb")),
    ]
    for figure in figures:
        if not args.ids or figure[0].startswith(tuple(args.ids)):
            show(*figure)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="store_bench")
    parser.add_argument("ids", nargs="*", help="measure only figures whose ids begin with one of these")
    parser.add_argument("--smoke", action="store_true", help="one small round; its numbers say nothing")
    args = parser.parse_args()
    if not shutil.which("redis-server"):
        sys.exit("store_bench.py: redis-server is not installed")
    for name, block in BLOCKS.items():
        figures = [f"redis_{what}_{name}" for what in ("get", "put", "get_cpu", "put_cpu")]
        if not args.ids or any(figure.startswith(tuple(args.ids)) for figure in figures):
            measure(args, name, block)


if __name__ == "__main__":
    main()
