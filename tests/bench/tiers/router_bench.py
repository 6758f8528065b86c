"""The router of the Python package without a network. `deploy/bench.sh router` runs it.

    /usr/bin/python3 tests/bench/tiers/router_bench.py PACKAGES [--smoke] [ID...]

PACKAGES is the folder of the package `pagoda`. Each node has 62,500 chunks: a million blocks of 16
tokens, in chunks of 256. All nodes have the first 8 chunks of a prompt of 32, and some have more.
Prints one JSON object a line for each figure whose id begins with one of the IDs (all, without
IDs). The figures:

    router_bytes                  bytes for each record; the yardstick is 9, a hash and a tier
    router_update                 records a second that one thread takes from messages of 1,000
                                  chunks; the yardstick is to parse the messages
    router_find_4, router_find_100  microseconds to find the eight best of so many nodes, median;
                                  the yardstick is to hash the prompt's blocks
"""

import pathlib
import random
import statistics
import sys
import time

from figure import show

sys.path.insert(0, sys.argv[1])

# pylint: disable=wrong-import-position
import pagoda  # noqa: E402
from pagoda import router as routers  # noqa: E402
from pagoda.caches import Caches  # noqa: E402
from pagoda.v1 import caches_pb2, events_pb2  # noqa: E402

BLOCK, CHUNK, PROMPT_CHUNKS, SHARED_CHUNKS = 16, 256, 32, 8
MESSAGE_CHUNKS = 1000
EPOCH = 7


def resident_bytes():
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * 4096


def snapshot(chunks):
    """The serialized messages of a snapshot."""
    for begin in range(0, len(chunks), MESSAGE_CHUNKS):
        end = begin + MESSAGE_CHUNKS
        message = events_pb2.WatchResponse(epoch=EPOCH, previous_revision=1, revision=1, snapshot_begin=begin == 0, snapshot_end=end >= len(chunks))
        stored = message.events.add().stored
        for chunk in chunks[begin:end]:
            stored.blocks.add(block_hash=chunk, tier=1)
        yield message.SerializeToString()


def seconds(body, rounds):
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        body()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


class Cluster:
    """A router and nodes that no thread reads."""

    def __init__(self, count, records, prompt):
        routers._Node.run = lambda self: None
        caches = caches_pb2.ListCachesResponse()
        caches.caches.add(epoch=EPOCH).cache.tokens_per_block = BLOCK
        self.router = pagoda.Router((pagoda.RouterNode(f"{i:04}", "unix:/none", "peer:1") for i in range(count)), chunk_tokens=CHUNK, lease=1e6)
        chunks = pagoda.block_hashes(prompt, BLOCK)[CHUNK // BLOCK - 1::CHUNK // BLOCK]
        self.parsing, self.taking, self.bytes = [], [], resident_bytes()
        for i, node in enumerate(self.router._nodes.values()):
            self.router._accept(node, Caches.take(caches))
            mine = chunks[:SHARED_CHUNKS + random.randrange(PROMPT_CHUNKS - SHARED_CHUNKS) * (i % 4 == 0)]
            for message in snapshot([*mine, *(random.getrandbits(64) for _ in range(records - len(mine)))]):
                self.parsing.append(seconds(lambda: events_pb2.WatchResponse.FromString(message), 1))
                self.taking.append(seconds(lambda: node.apply(events_pb2.WatchResponse.FromString(message)), 1))
        self.bytes = (resident_bytes() - self.bytes) / (count * records)


def main():
    smoke, ids = "--smoke" in sys.argv, [name for name in sys.argv[2:] if name != "--smoke"]
    random.seed(1)
    prompt = [random.randrange(100_000) for _ in range(PROMPT_CHUNKS * CHUNK + 1)]
    hashing = 1e6 * seconds(lambda: pagoda.block_hashes(prompt, BLOCK), 5 if smoke else 200)
    lines = []
    for nodes in (100, 4):
        cluster = Cluster(nodes, 2000 if smoke else 62_500, prompt)
        assert len(cluster.router.find(prompt).nodes) == min(nodes, 8)
        found = 1e6 * seconds(lambda: cluster.router.find(prompt), 5 if smoke else 200)
        lines.append((f"router_find_{nodes}", found, "us", "hash the prompt", hashing))
        if nodes == 100:
            rates = [MESSAGE_CHUNKS / statistics.median(times) for times in (cluster.taking, cluster.parsing)]
            lines.append(("router_update", rates[0], "records/s", "parse the messages", rates[1]))
            lines.append(("router_bytes", cluster.bytes, "bytes", "a hash and a tier", 9))
    for line in lines:
        if not ids or any(line[0].startswith(name) for name in ids):
            show(*line)


if __name__ == "__main__":
    main()
