"""The event stream is whole, in order and resumable, and it is the prefix tree."""

import random

import grpc
import pytest
from pagoda_client import Client, call_status, error_info
from pagoda.v1 import cache_pb2, events_pb2, events_pb2_grpc, types_pb2
from shadow_tree import ShadowTree

REASON = events_pb2.RemovalReason
TOKENS_PER_BLOCK = 4


class Watcher:
    """One subscriber. Checks every message for gaps."""

    def __init__(self, daemon, channel=None, **request):
        stub = events_pb2_grpc.EventServiceStub(channel or daemon.connect())
        self.stream = stub.Watch(events_pb2.WatchRequest(**request), timeout=60)
        self.events = []
        self.first = next(self.stream)
        self.revision = self.first.revision
        assert not self.first.events and self.first.previous_revision == self.first.revision

    def next(self):
        """The next message."""
        message = next(self.stream)
        assert (message.epoch, message.previous_revision) == (self.first.epoch, self.revision)
        expected = range(self.revision + 1, self.revision + 1 + len(message.events))
        assert [event.revision for event in message.events] == list(expected)
        self.revision += len(message.events)
        assert message.revision == self.revision
        self.events += message.events
        return message

    def read_to(self, revision):
        """All events so far, `revision` the last."""
        while self.revision < revision:
            self.next()
        return self.events


def shadow_of(events):
    tree = ShadowTree()
    for event in events:
        tree.apply(event)
    return tree


def prompt(rng):
    """Prompts that share prefixes often: a few alphabets of three tokens."""
    return [rng.randrange(3) for _ in range(rng.randrange(1, 30))]


def work(client, rng, operations):
    """Sequences that come, grow, commit and go."""
    running = {}
    for number in range(operations):
        if len(running) < 3:
            tokens = prompt(rng)
            client.add(number, tokens)
            running[number] = len(tokens)
            continue
        sequence = rng.choice(list(running))
        if rng.random() < 0.5:
            running[sequence] += 2
            client.append(sequence, [rng.randrange(3)] * 2, computed_tokens=running[sequence] - 1)
        if rng.random() < 0.7:
            client.commit(sequence, running.pop(sequence))
            client.free_sequence(sequence)
    for sequence in running:
        client.free_sequence(sequence)


def test_a_shadow_tree_made_of_the_events_is_the_managers_own(daemon):
    watcher = Watcher(daemon, from_revision=1)
    rng = random.Random(1)
    with Client(daemon.channel, "a") as one, Client(daemon.connect(), "b") as other:
        for _ in range(10):
            work(one, rng, 20)
            work(other, rng, 20)
            daemon.settle()
            tree = shadow_of(watcher.read_to(daemon.status().revision))
            assert len(tree.nodes) == daemon.primary().cached_blocks
            for _ in range(50):
                tokens = prompt(rng)
                assert one.match(tokens).matched_tokens == tree.match(tokens, TOKENS_PER_BLOCK), tokens
    assert tree.removed.get(REASON.REMOVAL_REASON_EVICTED, 0) > 20, "the workload fills the pool"
    assert tree.removed[REASON.REMOVAL_REASON_EVICTED] == daemon.status().windows[0].evicted_blocks_total


def test_a_shadow_tree_follows_blocks_between_two_tiers(start_daemon):
    daemon = start_daemon(cache={"primary": 32, "secondary": 16})
    watcher = Watcher(daemon, from_revision=1)
    rng = random.Random(2)
    with Client(daemon.channel) as client:
        for _ in range(20):
            work(client, rng, 20)
            daemon.settle()
            tree = shadow_of(watcher.read_to(daemon.status().revision))
            for tier in daemon.status().windows[0].tiers:
                nearest = sum(node.tier == tier.tier for node in tree.nodes.values())
                copies = sum(tier.tier in node.lower for node in tree.nodes.values())
                assert (nearest + copies, copies) == (tier.cached_blocks, tier.duplicate_blocks)
            for _ in range(50):
                tokens = prompt(rng)
                assert client.match(tokens).matched_tokens == tree.match(tokens, TOKENS_PER_BLOCK), tokens
    counted = daemon.status().windows[0]
    assert tree.removed[REASON.REMOVAL_REASON_DISPLACED] == counted.displaced_blocks_total > 20
    updates = [event.updated for event in watcher.events if event.WhichOneof("event") == "updated"]
    down = [update for update in updates if update.tier.new_value == types_pb2.TIER_SECOND]
    freely = [update for update in down if types_pb2.TIER_SECOND in update.lower_tiers.old_value]
    assert len(freely) == counted.freely_evicted_blocks_total
    assert len(down) - len(freely) == counted.offloaded_blocks_total


def test_every_allocation_is_told_where_that_is_wanted(start_daemon):
    daemon = start_daemon(events={"lifecycle": "all"})
    watcher = Watcher(daemon, from_revision=1)
    rng = random.Random(3)
    with Client(daemon.channel) as client:
        for _ in range(10):
            work(client, rng, 20)
            client.add(1000, range(9))
            taken = {handle.block_id for handle in client.allocate(2)}
            daemon.settle()
            tree = shadow_of(watcher.read_to(daemon.status().revision))
            window = daemon.primary()
            assert taken <= tree.raw_blocks
            assert not tree.raw_blocks & set(tree.nodes), "no block is both raw and cached"
            assert len(tree.raw_blocks) + len(tree.nodes) == window.capacity_blocks - window.free_blocks
            client.free_sequence(1000)
    daemon.settle()
    tree = shadow_of(watcher.read_to(daemon.status().revision))
    assert not tree.raw_blocks, "the session's end released everything"
    assert len(tree.nodes) == daemon.primary().cached_blocks > 0


def test_the_last_event_says_that_the_pools_are_removed(start_daemon):
    daemon = start_daemon()
    watcher = Watcher(daemon)
    assert daemon.terminate() == 0
    with pytest.raises(grpc.RpcError) as end:
        while True:
            watcher.next()
    assert end.value.code() == grpc.StatusCode.UNAVAILABLE
    (gone,) = watcher.events
    assert (gone.removed.reason, gone.removed.scope) == (REASON.REMOVAL_REASON_RELEASED, events_pb2.REMOVAL_SCOPE_POOLS)


def open_and_free(sequence_id, tokens):
    return [cache_pb2.Operation(add_sequence=cache_pb2.AddSequenceRequest(sequence_id=sequence_id, tokens=tokens)),
            cache_pb2.Operation(commit_tokens=cache_pb2.CommitTokensRequest(
                sequence_id=sequence_id, computed_tokens=len(tokens))),
            cache_pb2.Operation(free_sequence=cache_pb2.FreeSequenceRequest(sequence_id=sequence_id))]


def test_a_subscriber_that_falls_behind_the_log_is_told_so(start_daemon):
    daemon = start_daemon(events={"max_events": 1000})
    # A small window. Otherwise the client's gRPC reads ahead of the test.
    slow = Watcher(daemon, daemon.connect(options=[("grpc.http2.bdp_probe", 0)]))
    with Client(daemon.channel) as client:
        for number in range(1500):
            client.execute(*open_and_free(number, tokens=[number] * 200))
    with pytest.raises(grpc.RpcError) as failure:
        slow.read_to(daemon.status().revision)
    assert error_info(call_status(failure.value)).reason == "REVISION_COMPACTED"
    assert slow.revision < daemon.status().oldest_revision


def test_subscribers_are_counted_while_they_are_there(daemon):
    watchers = [Watcher(daemon) for _ in range(3)]
    assert daemon.status().subscribers == 3
    for watcher in watchers:
        watcher.stream.cancel()
    daemon.wait_until(lambda daemon: daemon.status().subscribers == 0)
