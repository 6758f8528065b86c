"""SubscribeKvEvents, called like the SMG gateway calls it. The stream is the tree, has no holes,
resumes where it stopped, and says when it cannot."""

import copy
import itertools
import random
import re
import threading

import grpc
import pytest
from pagoda_client import Client, authorized
from pagoda_daemon import CALL_SECONDS
from pagoda.v1 import admin_pb2, status_pb2
from smg.grpc import kv_events_pb2
from test_credentials import ALICE, CAROL, OPERATOR, guarded  # guarded is a fixture.
from test_events import TOKENS_PER_BLOCK, Watcher, work
from test_zmq_bridge import GPU, metric, rounds_of_load, whole_blocks

METHOD = "/vllm.grpc.engine.VllmEngine/SubscribeKvEvents"
MEDIA_LEVELS = {GPU: 0, "CPU": 1}


class Subscriber:
    """One stream, and the hashes that it reports, by cache_level. Checks that no number is
    missing."""

    def __init__(self, channel, start=0):
        call = channel.unary_stream(METHOD, request_serializer=kv_events_pb2.SubscribeKvEventsRequest.SerializeToString,
                                    response_deserializer=kv_events_pb2.KvEventBatch.FromString)
        self.stream = call(kv_events_pb2.SubscribeKvEventsRequest(start_sequence_number=start), timeout=60)
        self.last = start
        self.batches = 0
        self.events = 0
        self.hashes = {}

    def begun(self):
        self.stream.initial_metadata()
        return self

    def next(self):
        """The next batch, applied."""
        batch = next(self.stream)
        assert batch.sequence_number == self.last + 1 or self.last == 0
        self.last = batch.sequence_number
        self.batches += 1
        for event in batch.events:
            self.events += 1
            kind = event.WhichOneof("data")
            if kind == "stored":
                for block in event.stored.blocks:
                    assert len(block.token_ids) == block.block_size == TOKENS_PER_BLOCK
                    level = self.hashes.setdefault(block.cache_level, set())
                    assert block.block_hash not in level
                    level.add(block.block_hash)
            elif kind == "removed":
                for block_hash in event.removed.block_hashes:
                    self.hashes[event.removed.cache_level].remove(block_hash)
            else:
                assert kind == "cleared"
                self.hashes.clear()
        return batch

    def read_until(self, hashes):
        """Reads until it has these hashes, which come from Watch's events. Fails at the stream's
        deadline."""
        expected = {MEDIA_LEVELS[medium]: {h - (h >> 63 << 64) for h in some} for (_, medium), some in hashes.items() if some}
        while {level: some for level, some in self.hashes.items() if some} != expected:
            self.next()
        return self


@pytest.fixture
def bridged(start_daemon):
    return lambda **sections: start_daemon(**sections | {"events": {"smg": {"enabled": True}} | sections.get("events", {})})


def read_all(daemon, subscriber):
    """Reads every batch that there is, for a stream that began with the daemon's first one."""
    daemon.settle()
    daemon.wait_until(lambda daemon: metric(daemon, "pagoda_bridge_revision") == daemon.status().revision)
    while subscriber.batches < metric(daemon, "pagoda_bridge_batches_total"):
        subscriber.next()


def status_of(subscriber):
    with pytest.raises(grpc.RpcError) as failure:
        subscriber.next()
    return failure.value.code()


def rest_of(subscriber):
    """Reads on to the end of the stream, and says how it ended."""
    try:
        while True:
            subscriber.next()
    except grpc.RpcError as failure:
        return failure.code()


def test_the_stream_is_the_tree_of_the_events(bridged):
    daemon = bridged(cache={"primary": 32, "secondary": 16})
    subscriber, watcher = Subscriber(daemon.connect()).begun(), Watcher(daemon, from_revision=1)
    checks = []

    def check():
        daemon.settle()
        expected = whole_blocks(watcher.read_to(daemon.status().revision))
        subscriber.read_until(expected)
        checks.append(len(expected))

    rounds_of_load(daemon, check)
    assert max(checks) == 2, "there were blocks in both tiers"


def test_a_batch_is_encoded_once_for_all_who_see_the_same(guarded):
    daemon = guarded(events={"smg": {"enabled": True}}, server={"http_address": "127.0.0.1:0"})
    alice = authorized(daemon.connect(), ALICE)
    streams = [Subscriber(channel).begun() for channel in [daemon.channel] * 8 + [alice] * 4]
    with Client(alice) as client:
        for number in range(200):
            client.cache(number + 1, range(number * 100, number * 100 + 9))
    daemon.settle()
    daemon.wait_until(lambda daemon: metric(daemon, "pagoda_bridge_revision") == daemon.status().revision)
    batches = metric(daemon, "pagoda_bridge_batches_total")
    for subscriber in streams:
        for _ in range(batches):
            subscriber.next()
    encoded = metric(daemon, "pagoda_smg_encoded_batches_total")
    # The ring keeps many more batches, so a late subscriber finds all of them.
    assert encoded == 2 * batches > 20, f"{encoded} encodings of {batches} batches, for 12 subscribers with two views"
    for subscriber in streams:
        subscriber.stream.cancel()


def test_a_stream_goes_on_behind_what_was_applied(bridged):
    daemon = bridged()
    first = Subscriber(daemon.connect()).begun()
    with Client(daemon.channel) as client:
        work(client, random.Random(1), 100)
        daemon.settle()
    expected = whole_blocks(Watcher(daemon, from_revision=1).read_to(daemon.status().revision))
    batch = first.next()
    middle = Subscriber(daemon.connect(), start=batch.sequence_number)
    middle.hashes = copy.deepcopy(first.hashes)
    first.read_until(expected)
    while middle.last < first.last:
        middle.next()
    assert middle.hashes == first.hashes and first.events == middle.events + len(batch.events)


def test_a_late_subscriber_begins_with_what_is_cached(bridged):
    daemon = bridged(cache={"primary": 32, "secondary": 16})
    with Client(daemon.channel) as client:
        work(client, random.Random(2), 100)
    daemon.settle()
    expected = whole_blocks(Watcher(daemon, from_revision=1).read_to(daemon.status().revision))
    late = Subscriber(daemon.connect())
    assert [event.WhichOneof("data") for event in late.next().events] == ["cleared"]
    late.read_until(expected)
    assert late.hashes


def test_with_several_windows_the_largest_is_told_of(bridged):
    layers = [{"count": 1, "window": 8, "num_kv_heads": 2, "head_dim": 8}, {"count": 1, "num_kv_heads": 2, "head_dim": 8}]
    daemon = bridged(cache={"primary": 48, "layers": layers})
    subscriber = Subscriber(daemon.connect()).begun()
    with Client(daemon.channel) as client:
        work(client, random.Random(1), 60)
        daemon.settle()
    hashes = whole_blocks(Watcher(daemon, from_revision=1).read_to(daemon.status().revision))
    subscriber.read_until({place: some for place, some in hashes.items() if place[0] == 0})


def test_a_start_that_cannot_be_had_is_told_from_another_life(bridged):
    daemon = bridged(events={"smg": {"enabled": True, "buffer_steps": 2}}, server={"http_address": "127.0.0.1:0"})
    live = Subscriber(daemon.connect()).begun()
    with Client(daemon.channel) as client:
        for number in range(5):
            client.cache(number + 1, [number] * 9)
            read_all(daemon, live)
    gone = live.last - 4
    assert status_of(Subscriber(daemon.connect(), start=gone)) == grpc.StatusCode.OUT_OF_RANGE
    for another in (1, live.last + 1, 2**64 - 1):
        assert status_of(Subscriber(daemon.connect(), start=another)) == grpc.StatusCode.DATA_LOSS, another
    # It starts at the last batch that it applied: nothing is missing, and the next batch arrives.
    up_to_date = Subscriber(daemon.connect(), start=live.last).begun()
    with Client(daemon.channel) as client:
        client.cache(1, [77] * 9)
    read_all(daemon, live)
    while up_to_date.last < live.last:
        up_to_date.next()
    assert up_to_date.batches > 0

    # The next daemon's numbers begin above all numbers of this daemon.
    daemon.terminate()
    daemon.start()
    assert status_of(Subscriber(daemon.connect(), start=live.last)) == grpc.StatusCode.DATA_LOSS


def test_a_subscriber_that_the_ring_has_passed_is_told_so(bridged):
    daemon = bridged(events={"smg": {"enabled": True, "buffer_steps": 3}}, server={"http_address": "127.0.0.1:0"})
    slow = Subscriber(daemon.connect(options=[("grpc.http2.bdp_probe", 0)])).begun()
    with Client(daemon.channel) as client:
        for number in range(1500):
            client.cache(number + 1, [number * 1000 + i for i in range(240)])
    with pytest.raises(grpc.RpcError) as failure:
        while True:
            slow.next()
    assert failure.value.code() == grpc.StatusCode.OUT_OF_RANGE
    assert slow.events > 0
    daemon.wait_until(lambda daemon: closed(daemon)["behind"] == 1)


def rows(daemon):
    """The subscribers of the status page."""
    return list(daemon.told("subscribers", status_pb2.SubscriberList(), daemon.operator_token).subscribers)


def closed(daemon):
    """How many subscribers ended, by reason."""
    ends = re.findall(r'^pagoda_event_subscribers_closed_total{reason="(\w+)"} (\d+)$', daemon.metrics(), re.MULTILINE)
    return {reason: int(count) for reason, count in ends}


def test_its_subscribers_are_counted_and_listed(guarded):
    daemon = guarded(events={"smg": {"enabled": True}}, server={"http_address": "127.0.0.1:0"})
    alice = authorized(daemon.connect(), ALICE)
    quick = Subscriber(alice).begun()
    slow = Subscriber(authorized(daemon.connect(options=[("grpc.http2.bdp_probe", 0)]), OPERATOR)).begun()
    assert metric(daemon, "pagoda_event_subscribers") == daemon.status().subscribers == 2
    assert sorted((row.role, row.kind, row.tenant, row.filtered) for row in rows(daemon)) == [
        (status_pb2.CALLER_ROLE_TENANT, status_pb2.SUBSCRIBER_KIND_SMG, "alice", True),
        (status_pb2.CALLER_ROLE_OPERATOR, status_pb2.SUBSCRIBER_KIND_SMG, "", False)]
    with Client(alice) as client:
        client.cache(1, range(9))
        quick.next()
        daemon.wait_until(lambda daemon: [row.sent_revision for row in rows(daemon)] == 2 * [daemon.status().revision])
        assert metric(daemon, "pagoda_event_subscriber_max_lag_events") == 0
        reader = threading.Thread(target=rest_of, args=[quick])
        reader.start()
        sequences = iter(range(2, 10**6))

        def slow_is_behind(daemon):
            for number in itertools.islice(sequences, 50):
                client.cache(number, [number * 1000 + i for i in range(240)])
            return metric(daemon, "pagoda_event_subscriber_max_lag_events") > 100

        daemon.wait_until(slow_is_behind)
        (row,) = (row for row in rows(daemon) if row.role == status_pb2.CALLER_ROLE_OPERATOR)
        assert row.writing and row.lag_events > 100
    slow.stream.cancel()
    quick.stream.cancel()
    reader.join()
    daemon.wait_until(lambda daemon: metric(daemon, "pagoda_event_subscribers") == daemon.status().subscribers == 0)
    assert closed(daemon) == {"client": 2, "behind": 0, "draining": 0, "error": 0}
    assert metric(daemon, "pagoda_event_subscribers_opened_total") == 2 and rows(daemon) == []


def test_a_tenant_sees_its_own_and_no_hole(guarded):
    daemon = guarded(events={"smg": {"enabled": True}})
    channels = {name: authorized(daemon.connect(), token) for name, token in (("alice", ALICE), ("carol", CAROL))}
    streams = {name: Subscriber(channel).begun() for name, channel in channels.items()} | {"operator": Subscriber(daemon.channel).begun()}
    with Client(channels["alice"]) as alice, Client(channels["carol"]) as carol:
        for number in range(20):
            (alice if number % 4 == 0 else carol).cache(number + 1, range(number * 100, number * 100 + 9))
    while len(streams["operator"].hashes.get(0, ())) < 40:
        streams["operator"].next()
    for subscriber in streams.values():
        while subscriber.last < streams["operator"].last:
            subscriber.next()
    alice, carol, operator = (streams[name].hashes[0] for name in ("alice", "carol", "operator"))
    assert alice | carol == operator and not alice & carol and (len(alice), len(carol)) == (10, 30)
    daemon.admin.ResetPrefixCache(admin_pb2.ResetPrefixCacheRequest(), timeout=CALL_SECONDS)
    for subscriber in streams.values():
        while subscriber.hashes:
            subscriber.next()
        subscriber.stream.cancel()


def test_a_drain_ends_the_streams(bridged):
    daemon = bridged()
    subscriber = Subscriber(daemon.connect()).begun()
    ended = threading.Thread(target=lambda: codes.append(rest_of(subscriber)))
    codes = []
    ended.start()
    assert daemon.terminate() == 0
    ended.join()
    assert codes == [grpc.StatusCode.UNAVAILABLE]


def test_a_drain_tells_the_last_events_first(bridged):
    """The feed waits for more events when the drain begins."""
    daemon = bridged(events={"smg": {"enabled": True}, "flush_interval": "1s"})
    subscriber = Subscriber(daemon.connect()).begun()
    with Client(daemon.channel) as client:
        for number in range(5):
            client.cache(number + 1, [number] * 9)
    ended = threading.Thread(target=lambda: codes.append(rest_of(subscriber)))
    codes = []
    ended.start()
    assert daemon.terminate() == 0
    ended.join()
    assert codes == [grpc.StatusCode.UNAVAILABLE]
    assert len(subscriber.hashes.get(0, ())) == 10


def test_where_it_is_off_nobody_knows_the_method(daemon):
    assert status_of(Subscriber(daemon.connect())) == grpc.StatusCode.UNIMPLEMENTED
