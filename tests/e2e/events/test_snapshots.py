"""A subscriber that comes late has the whole state, exactly, while the cache goes on changing."""

import random
import threading

import pytest
from pagoda_client import Client
from pagoda.v1 import events_pb2, events_pb2_grpc
from shadow_tree import ShadowTree

BLOCKS = 6000


class Joiner:
    """A subscriber with a snapshot, at most; it checks that the messages join."""

    def __init__(self, daemon, **request):
        stub = events_pb2_grpc.EventServiceStub(daemon.connect())
        self.stream = stub.Watch(events_pb2.WatchRequest(**request), timeout=100)
        self.tree = ShadowTree()
        self.revision = None
        self.snapshots = self.pieces = self.changes = 0

    def next(self):
        message = next(self.stream)
        if message.snapshot_begin:
            assert not message.events
            self.tree.begin_snapshot()
        elif self.revision is not None:
            assert message.previous_revision == self.revision
        for event in message.events:
            assert event.revision == 0 or message.previous_revision < event.revision <= message.revision
            if self.tree.in_snapshot:
                self.pieces += event.revision == 0
                self.changes += event.revision != 0
            self.tree.apply(event)
        self.revision = message.revision
        if message.snapshot_end:
            self.tree.end_snapshot()
            self.snapshots += 1
        return message

    def read_snapshot(self):
        before = self.snapshots
        while self.snapshots == before:
            self.next()

    def read_to(self, revision):
        while self.revision is None or self.revision < revision:
            self.next()


@pytest.fixture
def daemon(start_daemon):
    # The log keeps all events of a test, because some tests read it from its beginning.
    return start_daemon(cache={"primary": BLOCKS, "secondary": BLOCKS}, events={"max_events": 1 << 24, "max_bytes": 4 << 30})


def churn(client, rng, stop):
    number = 0
    while not stop.is_set():
        number += 1
        tokens = [rng.randrange(50_000) for _ in range(rng.randrange(4, 200))]
        client.add(number, tokens)
        client.commit(number, len(tokens))
        client.free_sequence(number)
        if number % 20 == 0:
            client.free(client.allocate(3))


def test_who_comes_late_has_the_same_tree_as_who_saw_everything(daemon):
    rng = random.Random(4)
    with Client(daemon.connect(), "filler", lease_ms=60_000) as filler:
        kept = filler.allocate(2)
        for number in range(80):  # Both tiers are full of cached blocks, and blocks are evicted.
            tokens = [rng.randrange(50_000) for _ in range(600)]
            filler.cache(number + 1, tokens)
        stop = threading.Event()
        with Client(daemon.connect(), "churn") as other:
            worker = threading.Thread(target=churn, args=(other, random.Random(5), stop))
            worker.start()
            try:
                changes = 0
                first = Joiner(daemon, from_revision=1)
                for _ in range(30):  # Until a snapshot is read during a change. The simulation surely tests that.
                    joiner = Joiner(daemon, snapshot=True)
                    joiner.read_snapshot()
                    changes += joiner.changes
                    assert joiner.pieces > 0
                    first.read_to(joiner.revision)
                    while joiner.revision != first.revision:
                        min(joiner, first, key=lambda watcher: watcher.revision).next()
                    assert joiner.tree.nodes == first.tree.nodes and joiner.tree.raw_blocks == first.tree.raw_blocks
                    if changes:
                        break
            finally:
                stop.set()
                worker.join()
        filler.free(kept)


def test_messages_stay_small_while_a_slow_reader_takes_its_snapshot(start_daemon):
    """Between two pieces of a stalled snapshot happens more than a client's limit for a message."""
    blocks, prompt, written = 40_000, 16_000, 60  # The written prompts replace all earlier blocks.
    daemon = start_daemon(cache={"primary": blocks, "tokens_per_block": 16}, events={"max_events": 1 << 20})
    with Client(daemon.channel) as client:
        for sequence in range(35):
            client.cache(sequence + 1, [sequence] + list(range(100_000, 100_000 + prompt - 1)))
        # The connection holds few bytes that the reader has not read.
        channel = daemon.connect(options=[("grpc.http2.lookahead_bytes", 4096), ("grpc.http2.bdp_probe", 0)])
        watch = channel.unary_stream(
            "/pagoda.v1.EventService/Watch", request_serializer=events_pb2.WatchRequest.SerializeToString)
        stream = watch(events_pb2.WatchRequest(snapshot=True), timeout=100)
        taken = [next(stream) for _ in range(4)]
        for sequence in range(35, 35 + written):
            client.cache(sequence + 1, [sequence] + list(range(200_000, 200_000 + prompt - 1)))
        last = daemon.status().revision
    sizes, tree, ended, revision = [], ShadowTree(), False, None
    tree.begin_snapshot()
    while revision is None or revision < last or not ended:
        data = taken.pop(0) if taken else next(stream)
        sizes.append(len(data))
        message = events_pb2.WatchResponse.FromString(data)
        assert revision is None or message.previous_revision == revision
        revision = message.revision
        for event in message.events:
            tree.apply(event)
        if message.snapshot_end:
            tree.end_snapshot()
            ended = True
    assert sum(sizes) > written * prompt / 2, "the stream has the tokens of the prompts that were written meanwhile"
    assert max(sizes) < 1 << 20, f"{max(sizes):,} bytes in one message"
    late = Joiner(daemon, snapshot=True)
    late.read_snapshot()
    assert tree.nodes == late.tree.nodes
