"""pagoda.Router with daemons that the test plays."""

import concurrent.futures
import contextlib
import queue
import threading
import time

import grpc
import pagoda
import pytest
from google.rpc import error_details_pb2, status_pb2
from pagoda.v1 import admin_pb2_grpc, caches_pb2, events_pb2, events_pb2_grpc

CHUNK = 32  # Two blocks.
TOKENS = list(range(4 * CHUNK))
HASHES = pagoda.block_hashes(TOKENS, 16)[1::2]


def stored(epoch, previous, revision, blocks=(), **more):
    """A message that continues at `previous` and stores chunks in tiers."""
    message = events_pb2.WatchResponse(epoch=epoch, previous_revision=previous, revision=revision, **more)
    if blocks:
        event = message.events.add(revision=revision)
        for chunk, tier in blocks:
            event.stored.blocks.add(block_hash=chunk, tier=tier)
    return message


def snapshot(epoch, revision, blocks=()):
    return stored(epoch, revision, revision, blocks, snapshot_begin=True, snapshot_end=True)


def chunks(count, tier=1):
    return [(chunk, tier) for chunk in HASHES[:count]]


class FakeNode(events_pb2_grpc.EventServiceServicer, admin_pb2_grpc.AdminServiceServicer):
    """It serves a cache of 64 bytes a token, and sends the messages that it is told. A stream stays
    open until it is told to end."""

    def __init__(self, path, epoch, tokens_per_block=16, model="m", windows=(128, 0)):
        self.path, self.windows = path, windows
        self.epoch, self.tokens_per_block, self.model = epoch, tokens_per_block, model
        self.messages = queue.Queue()
        self.requests = []
        self.start()

    @property
    def endpoint(self):
        return f"unix:{self.path}"

    def start(self):
        self.down = threading.Event()
        self.server = grpc.server(concurrent.futures.ThreadPoolExecutor(8))
        events_pb2_grpc.add_EventServiceServicer_to_server(self, self.server)
        admin_pb2_grpc.add_AdminServiceServicer_to_server(self, self.server)
        self.server.add_insecure_port(self.endpoint)
        self.server.start()

    def stop(self):
        self.down.set()
        self.server.stop(0).wait()

    def ListCaches(self, request, context):
        answer = caches_pb2.ListCachesResponse()
        row = answer.caches.add(epoch=self.epoch)
        row.cache.name, row.cache.model_fingerprint, row.cache.tokens_per_block = "main", self.model, self.tokens_per_block
        for window in self.windows:
            row.cache.windows.add(window_size=window)
        for tier in (1, 2, 3):
            row.cache.tiers.add(tier=tier, medium=tier)  # GPU, host, disk.
        row.layers.add(count=1, kind=1, num_kv_heads=2, head_dim=8, dtype=3)
        return answer

    def Watch(self, request, context):
        self.requests.append(request)
        while not self.down.is_set() and context.is_active():
            with contextlib.suppress(queue.Empty):
                message = self.messages.get(timeout=0.005)
                if isinstance(message, str):
                    self.refuse(context, message)
                yield message

    @staticmethod
    def refuse(context, reason):
        code = grpc.StatusCode.OUT_OF_RANGE if reason != "gone" else grpc.StatusCode.UNAVAILABLE
        info = error_details_pb2.ErrorInfo(reason=reason, domain="pagoda")
        details = status_pb2.Status(code=code.value[0], message="played")
        details.details.add().Pack(info)
        context.set_trailing_metadata((("grpc-status-details-bin", details.SerializeToString()),) if reason != "gone" else ())
        context.abort(code, "played")


def wait_for(happens):
    deadline = time.monotonic() + 60
    while not happens():
        assert time.monotonic() < deadline
        time.sleep(0.002)


@pytest.fixture
def play(tmp_path):
    """play(name, epoch) starts a node."""
    with contextlib.ExitStack() as running:
        def start(name, epoch, **content):
            node = FakeNode(tmp_path / name, epoch, **content)
            running.callback(node.stop)
            return node

        yield start


@pytest.fixture
def route():
    """route(nodes by name) starts a router."""
    with contextlib.ExitStack() as running:
        def start(nodes, **options):
            router = running.enter_context(pagoda.Router(chunk_tokens=CHUNK, **options))
            for name, node in nodes.items():
                router.add(pagoda.RouterNode(name, node.endpoint, f"{name}:7001"))
            return router

        yield start


def found(router, most=8):
    return [(one.node.name, one.tokens, int(one.tier)) for one in router.find(TOKENS, most=most).nodes]


def status(router, name="a"):
    return next(node for node in router.nodes() if node.node.name == name)


def test_it_follows_a_snapshot_and_changes(play, route):
    node = play("a", 7)
    router = route({"a": node})
    assert found(router) == []
    node.messages.put(snapshot(7, 10, chunks(2)))
    wait_for(lambda: found(router) == [("a", 64, 1)])
    (request,) = node.requests
    assert request.snapshot and request.resnapshot_when_behind and request.chunk_tokens == CHUNK
    assert request.content == events_pb2.EVENT_CONTENT_HASHES and list(request.window_sizes) == [0]

    node.messages.put(stored(7, 10, 11, [(HASHES[2], 2)]))
    wait_for(lambda: found(router) == [("a", 96, 2)])
    moved = stored(7, 11, 12)
    updated = moved.events.add().updated
    updated.block_hash, updated.tier.new_value = HASHES[2], 3
    node.messages.put(moved)
    wait_for(lambda: found(router) == [("a", 96, 3)])
    removed = stored(7, 12, 14)
    removed.events.add().removed.block_hashes.append(HASHES[2])
    node.messages.put(removed)
    wait_for(lambda: found(router) == [("a", 64, 1)])
    cleared = stored(7, 14, 15)
    cleared.events.add().removed.scope = events_pb2.REMOVAL_SCOPE_WINDOW
    cleared.events.add().stored.blocks.add(block_hash=HASHES[0], tier=1)
    node.messages.put(cleared)
    wait_for(lambda: found(router) == [("a", 32, 1)])
    assert status(router).records == 1 and status(router).gaps == 0
    node.messages.put(stored(7, 15, 16, chunks(4)))
    wait_for(lambda: found(router) == [("a", 127, 1)])  # The last token is always computed.


def test_a_broken_stream_is_hidden_and_continues(play, route):
    node = play("a", 7)
    router = route({"a": node}, lease=60)
    node.messages.put(snapshot(7, 10, chunks(2)))
    wait_for(lambda: found(router) == [("a", 64, 1)])
    node.messages.put("gone")
    wait_for(lambda: len(node.requests) == 2)
    assert found(router) == [] and status(router).state is pagoda.NodeState.BROKEN and status(router).records == 2
    assert not node.requests[1].snapshot and (node.requests[1].from_revision, node.requests[1].epoch) == (11, 7)
    node.messages.put(stored(7, 10, 10))
    wait_for(lambda: found(router) == [("a", 64, 1)])
    assert status(router).snapshots == 1


@pytest.mark.parametrize("lost", [stored(7, 12, 13), "REVISION_COMPACTED", "EPOCH_CHANGED"], ids=["gap", "compacted", "epoch"])
def test_missing_events_lead_to_a_snapshot(play, route, lost):
    node = play("a", 7)
    router = route({"a": node}, lease=60)
    node.messages.put(snapshot(7, 10, chunks(3)))
    wait_for(lambda: found(router) == [("a", 96, 1)])
    if lost == "EPOCH_CHANGED":
        node.epoch = 8
    node.messages.put(lost)
    wait_for(lambda: len(node.requests) == 2)
    assert found(router) == [] and status(router).records == 0 and status(router).gaps == 1
    assert node.requests[1].snapshot
    node.messages.put(snapshot(node.epoch, 20, chunks(2)))
    wait_for(lambda: found(router) == [("a", 64, 1)])
    node.messages.put(snapshot(node.epoch, 30, chunks(1)))  # In the same stream.
    wait_for(lambda: found(router) == [("a", 32, 1)])
    assert status(router).gaps == 2


def test_a_snapshot_that_breaks_begins_again(play, route):
    node = play("a", 7)
    router = route({"a": node}, lease=60)
    node.messages.put(stored(7, 10, 10, chunks(2), snapshot_begin=True))
    wait_for(lambda: found(router) == [("a", 64, 1)])  # What has arrived counts.
    assert status(router).state is pagoda.NodeState.SNAPSHOT
    node.messages.put("gone")
    wait_for(lambda: len(node.requests) == 2)
    assert node.requests[1].snapshot and status(router).records == 0


def test_a_node_that_restarts_between_its_answers_begins_again(play, route):
    node = play("a", 7)
    router = route({"a": node}, lease=60)
    node.messages.put(snapshot(9, 10, chunks(2)))
    wait_for(lambda: len(node.requests) == 2)
    assert found(router) == [] and status(router).records == 0  # Its cache may be another one.
    node.epoch = 9
    wait_for(lambda: status(router).gaps == 1)


def test_a_silent_node_is_ignored_within_its_lease(play, route):
    silent, alive = play("a", 7), play("b", 8)
    router = route({"a": silent, "b": alive}, lease=0.5)
    silent.messages.put(snapshot(7, 10, chunks(3)))
    alive.messages.put(snapshot(8, 10, chunks(2)))
    wait_for(lambda: len(found(router)) == 2)
    last = time.monotonic()
    while time.monotonic() < last + 1.5:
        alive.messages.put(stored(8, 10, 10))
        time.sleep(0.02)
        # The node's last message came before `last`.
        if time.monotonic() > last + 0.5:
            assert found(router) == [("b", 64, 1)]
    assert status(router, "a").state is pagoda.NodeState.DEAD and not status(router, "a").alive
    assert status(router, "a").records == 0 and status(router, "b").alive
    silent.messages.put(snapshot(7, 12, chunks(1)))
    wait_for(lambda: ("a", 32, 1) in found(router))


def test_a_restarted_node_comes_back(play, route):
    node = play("a", 7)
    router = route({"a": node}, lease=0.3)
    node.messages.put(snapshot(7, 10, chunks(3)))
    wait_for(lambda: found(router) == [("a", 96, 1)])
    node.stop()
    wait_for(lambda: found(router) == [])
    wait_for(lambda: status(router).state is pagoda.NodeState.DEAD and status(router).records == 0)
    node.epoch = 8
    node.messages.put(snapshot(8, 3, chunks(1)))
    node.start()
    wait_for(lambda: found(router) == [("a", 32, 1)])
    assert status(router).epoch == 8


def test_other_content_is_refused(play, route):
    first = play("a", 7)
    router = route({"a": first})
    first.messages.put(snapshot(7, 10, chunks(1)))
    wait_for(lambda: found(router) == [("a", 32, 1)])
    others = {"b": play("b", 8, tokens_per_block=32), "c": play("c", 9, model="other"), "d": play("d", 9, tokens_per_block=64)}
    for name, node in others.items():
        router.add(pagoda.RouterNode(name, node.endpoint))
        wait_for(lambda name=name: status(router, name).state is pagoda.NodeState.REFUSED)
        assert node.requests == []
    assert "32 tokens" in str(status(router, "b").error) and "'other'" in str(status(router, "c").error)
    assert "no whole blocks" in str(status(router, "d").error)
    router.remove("a")
    router.remove("b")
    others["c"].messages.put(snapshot(9, 4, chunks(2)))
    wait_for(lambda: found(router) == [("c", 64, 1)])


def test_the_only_node_may_restart_with_another_model(play, route):
    node = play("a", 7)
    router = route({"a": node}, lease=60)
    node.messages.put(snapshot(7, 10, chunks(2)))
    wait_for(lambda: found(router) == [("a", 64, 1)])
    node.epoch, node.model = 8, "other"
    node.messages.put("EPOCH_CHANGED")
    node.messages.put(snapshot(8, 4, chunks(1)))
    wait_for(lambda: found(router) == [("a", 32, 1)])


def test_a_node_that_refuses_is_asked_again(play, route):
    node = play("a", 7)
    node.messages.put("PERMISSION_DENIED")
    router = route({"a": node}, lease=60)
    wait_for(lambda: status(router).state is pagoda.NodeState.REFUSED)
    assert status(router).error.reason == "PERMISSION_DENIED"
    node.messages.put(snapshot(7, 10, chunks(1)))
    wait_for(lambda: found(router) == [("a", 32, 1)])


def test_in_a_sliding_window_the_first_chunks_can_be_gone(play, route):
    node = play("a", 7)
    router = route({"a": node}, lease=60)
    node.messages.put(snapshot(7, 10, chunks(4, tier=2)[1:]))
    wait_for(lambda: found(router) == [("a", 127, 2)])


@pytest.mark.parametrize(("kept", "tokens"), [(range(24, 40), 40 * CHUNK - 1), (range(20, 36), 36 * CHUNK), (range(25, 40), 0),
                                              (range(10), 10 * CHUNK)])
def test_in_a_sliding_window_the_last_chunks_count(play, route, kept, tokens):
    """40 chunks, of which a window has 16."""
    prompt = list(range(40 * CHUNK))
    hashes = pagoda.block_hashes(prompt, 16)[1::2]
    node = play("a", 7, windows=(16 * CHUNK,))
    router = route({"a": node}, lease=60)
    node.messages.put(snapshot(7, 10, [(hashes[i], 1) for i in kept]))
    wait_for(lambda: status(router).records == len(kept))
    assert [one.tokens for one in router.find(prompt).nodes] == ([tokens] if tokens else [])


def test_nodes_come_and_go(play, route):
    nodes = {"a": play("a", 7), "b": play("b", 8)}
    router = route(nodes)
    nodes["a"].messages.put(snapshot(7, 10, chunks(3)))
    nodes["b"].messages.put(snapshot(8, 10, chunks(2)))
    wait_for(lambda: found(router) == [("a", 96, 1), ("b", 64, 1)])
    assert router.wait(60) and found(router, most=1) == [("a", 96, 1)]
    for bad in (pagoda.RouterNode("a", "unix:/x"), pagoda.RouterNode("", "unix:/x")):
        with pytest.raises(ValueError):
            router.add(bad)
    router.remove("a")
    assert found(router) == [("b", 64, 1)]
    with pytest.raises(KeyError):
        router.remove("a")


def test_costs_follow_the_formula(play, route):
    nodes = {"a": play("a", 7), "b": play("b", 8)}
    # 64 bytes a token. A token takes 10 ms to compute, 2 ms from host, 4 ms from disk, 8 ms from a
    # peer.
    costs = pagoda.RouteCosts(recompute_tokens_per_second=100, host_bytes_per_second=64 * 500, disk_bytes_per_second=64 * 250,
                              peer_bytes_per_second=64 * 125)
    router = route(nodes, costs=costs)
    nodes["a"].messages.put(snapshot(7, 10, list(zip(HASHES, (1, 2, 3)))))
    nodes["b"].messages.put(snapshot(8, 10, chunks(1)))
    wait_for(lambda: len(found(router)) == 2 and router.wait(60))
    a, b = router.find(TOKENS).nodes
    assert a.cost == pytest.approx(32 * 0.002 + 32 * 0.004 + 32 * 0.01) and a.fetch_from is None
    assert b.cost == pytest.approx(64 * 0.008 + 32 * 0.01) and b.fetch_tokens == 64 and b.fetch_from.peer_address == "a:7001"
    other = router.find(TOKENS).other
    assert other.cost == pytest.approx(96 * 0.008 + 32 * 0.01) and other.node is None and other.fetch_tokens == 96
    with pytest.raises(ValueError):
        pagoda.RouteCosts(host_bytes_per_second=0)


def test_bad_options_are_refused():
    for bad in ({"chunk_tokens": 0}, {"lease": 0.0}):
        with pytest.raises(ValueError):
            pagoda.Router(**bad)
