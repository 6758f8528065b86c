"""Compares a fetch from another daemon with iperf3, in turns. `deploy/bench.sh store` runs it.

    /usr/bin/python3 tests/bench/tiers/peer_bench.py PEER_BENCH [--smoke] [ID...]

One process serves a prefix of 4,096 tokens, in 128 blocks, out of its host memory. Another one
fetches it over loopback into its own cache: it asks what there is, reserves blocks, reads them into
place, verifies and commits them. Prints one JSON object a line for each figure whose id begins with
one of the IDs (all, without IDs): medians of the rounds. The figures:

    peer_fetch_1m, peer_fetch_128k
        GB/s of the fetch, with blocks of 1 MiB (128 MiB in all) and of 128 KiB (16 MiB). The
        yardstick is iperf3 with one connection and its defaults, which verifies nothing and writes
        nothing into place. Without iperf3 it is null.
"""

import argparse
import json
import shutil
import socket
import statistics
import subprocess
import time

from figure import show

BLOCKS = {"1m": 1 << 20, "128k": 128 << 10}
COUNT = 4096 // 32
ROUNDS = 7
SECONDS = 1  # The seconds of each side in a round.


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def fetch(program, port, block, rounds):
    """GB/s of each fetch."""
    run = subprocess.run([program, "fetch", str(block), str(COUNT), str(port), str(rounds)], stdout=subprocess.PIPE, check=True, text=True)
    return [block * COUNT / float(line.split()[0]) / 1e9 for line in run.stdout.splitlines()]


def iperf3(seconds):
    """GB/s that the receiver got."""
    port = free_port()
    server = subprocess.Popen(["iperf3", "-s", "-p", str(port)], stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 10
        while True:
            run = subprocess.run(["iperf3", "-c", "127.0.0.1", "-p", str(port), "-t", str(seconds), "-J"], stdout=subprocess.PIPE, text=True)
            result = json.loads(run.stdout)
            if "sum_received" in result.get("end", {}):
                return result["end"]["sum_received"]["bits_per_second"] / 8e9
            # The server does not listen yet.
            assert time.monotonic() < deadline, "iperf3 does not run"
            time.sleep(0.05)
    finally:
        server.kill()
        server.wait()


def measure(args, name, block):
    server = subprocess.Popen([args.program, "serve", str(block), str(COUNT)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        port = int(server.stdout.readline())
        # About as long as iperf3 in each round.
        fetches = 1 if args.smoke else max(3, int(SECONDS * 2e9 / (block * COUNT)))
        ours, theirs = [], []
        for _ in range(1 if args.smoke else ROUNDS):
            ours.append(statistics.median(fetch(args.program, port, block, fetches)))
            if shutil.which("iperf3") and not args.smoke:
                theirs.append(iperf3(SECONDS))
    finally:
        server.stdin.close()
        server.wait()
    show(f"peer_fetch_{name}", statistics.median(ours), "GB/s", "iperf3", statistics.median(theirs) if theirs else None)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="peer_bench")
    parser.add_argument("ids", nargs="*", help="measure only figures whose ids begin with one of these")
    parser.add_argument("--smoke", action="store_true", help="one small round; its numbers say nothing")
    args = parser.parse_args()
    for name, block in BLOCKS.items():
        if not args.ids or f"peer_fetch_{name}".startswith(tuple(args.ids)):
            measure(args, name, block)


if __name__ == "__main__":
    main()
