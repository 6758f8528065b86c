"""vLLM's ZMQ wire: a router that knows it, and nothing of Pagoda, has the same tree as a subscriber
of Watch."""

import importlib.util
import os
import pathlib
import random
import re
import socket
import sys
import types

import pytest
import zmq
from pagoda_client import Client
from pagoda_daemon import CALL_SECONDS
from pagoda.v1 import admin_pb2, events_pb2, status_pb2, types_pb2
from shadow_tree import ShadowTree
from test_events import TOKENS_PER_BLOCK, Watcher, prompt, work
from vllm_events import CPU, GPU, Index, MapDecoder, StructDecoder, Subscriber, install_msgspec
from watch_history import tiers_after, tiers_of

MEDIA = {types_pb2.TIER_PRIMARY: GPU, types_pb2.TIER_SECOND: CPU}


@pytest.fixture(params=["msgpack", "msgspec"])
def decoder(request):
    if request.param == "msgpack":
        return MapDecoder()
    msgspec = install_msgspec()
    if msgspec is None:
        pytest.skip("PyPI has not answered, so there is no msgspec; msgpack has decoded the same")
    return StructDecoder(msgspec)


@pytest.fixture
def bridged(start_daemon):
    """bridged(**sections) starts a daemon with the bridge and returns (daemon, subscriber). Keys of
    `zmq` replace those of the bridge."""
    subscribers = []

    def start(zmq=None, **sections):
        sections["server"] = {"http_address": "127.0.0.1:0"} | sections.get("server", {})
        sections["events"] = sections.get("events", {}) | {
            "zmq": {"endpoint": "ipc://events.sock", "replay_endpoint": "ipc://replay.sock", "pod": "pod-7", "model": "tiny"} | (zmq or {})}
        for key in ("endpoint", "replay_endpoint"):
            name = sections["events"]["zmq"][key].removeprefix("ipc://")
            sections["events"]["zmq"][key] = f"ipc:///tmp/pagoda-{os.getpid()}-{len(subscribers)}-{name}"
        daemon = start_daemon(**sections)
        subscribers.append(Subscriber(sections["events"]["zmq"]["endpoint"], sections["events"]["zmq"]["replay_endpoint"]))
        return daemon, subscribers[-1]

    yield start
    for subscriber in subscribers:
        subscriber.close()


def metric(daemon, name):
    """The metric's value in a daemon that serves one cache."""
    (value,) = re.findall(rf'^{name}(?:\{{cache="[^"]*"\}})? (\S+)$', daemon.http("/metrics")[1], re.MULTILINE)
    return int(float(value))


def published(daemon):
    """How many batches there are when the bridge has told everything."""
    daemon.settle()
    daemon.wait_until(lambda daemon: metric(daemon, "pagoda_bridge_revision") == daemon.status().revision)
    return metric(daemon, "pagoda_zmq_batches_total")


def follow(daemon, subscriber, index):
    for payload in subscriber.batches_to(published(daemon)):
        index.apply(payload)


def whole_blocks(events):
    """{(window size, medium): {hash}} of the whole blocks that Watch's events leave cached."""
    windows = {}
    for event in events:
        blocks = windows.setdefault(event.window_size, {})
        if event.WhichOneof("event") == "stored":
            for block in event.stored.blocks:
                blocks[block.block_id] = [block.block_hash, tiers_of(block), len(block.tokens)]
        elif event.WhichOneof("event") == "updated":
            block = blocks[event.updated.block_id]
            block[1] = tiers_after(block[1], event.updated)
        elif event.WhichOneof("event") == "removed":
            if event.removed.scope == events_pb2.REMOVAL_SCOPE_WINDOW:
                blocks.clear()
            elif event.removed.reason != events_pb2.REMOVAL_REASON_RELEASED:
                for block_id in event.removed.block_ids:
                    del blocks[block_id]
    found = {}
    for window, blocks in windows.items():
        for block_hash, tiers, tokens in blocks.values():
            if tokens == TOKENS_PER_BLOCK:
                for tier in tiers:
                    found.setdefault((window, MEDIA[tier]), set()).add(block_hash)
    return found


def rounds_of_load(daemon, check, rounds=10):
    """Eviction, moves between the tiers, invalidation and resets, with `check()` in between."""
    rng = random.Random(4)
    with Client(daemon.channel) as client:
        for number in range(rounds):
            work(client, rng, 40)
            client.offload(prompt(rng) + [0] * 8)
            client.prefetch(prompt(rng) + [1] * 8)
            client.invalidate([rng.randrange(3) for _ in range(4)])
            if number % 4 == 3:
                check()
                daemon.admin.ResetPrefixCache(admin_pb2.ResetPrefixCacheRequest(), timeout=CALL_SECONDS)
            check()


def test_a_router_has_the_tree_of_the_events(bridged, decoder):
    daemon, subscriber = bridged(cache={"primary": 32, "secondary": 16})
    watcher, index = Watcher(daemon, from_revision=1), Index(decoder)
    compared = []

    def check():
        follow(daemon, subscriber, index)
        events = watcher.read_to(daemon.status().revision)
        expected = whole_blocks(events)
        assert index.hashes() == {(None, medium): hashes for (_, medium), hashes in expected.items()}
        tree = ShadowTree()
        for event in events:
            tree.apply(event)
        for node in tree.nodes.values():
            if len(node.tokens) == TOKENS_PER_BLOCK:
                for tier in (node.tier, *node.lower):
                    parent, tokens = index.places[None, MEDIA[tier]][node.hash]
                    assert tokens == node.tokens and parent == (None if node.parent is None else tree.nodes[node.parent].hash)
        compared.append(sum(map(len, expected.values())))

    rounds_of_load(daemon, check)
    assert len(compared) == 12 and sorted(compared)[6] > 15, compared
    assert index.counts["AllBlocksCleared"] == 3 and min(index.counts.values()) >= 2
    window = daemon.status().windows[0]
    assert min(window.offloaded_blocks_total, window.onboarded_blocks_total, window.displaced_blocks_total) > 5, window
    assert subscriber.topics <= {"kv@pod-7@tiny"}


def test_each_window_is_a_group(bridged, decoder):
    layers = [{"count": 1, "window": 8, "num_kv_heads": 2, "head_dim": 8}, {"count": 1, "num_kv_heads": 2, "head_dim": 8}]
    daemon, subscriber = bridged(cache={"primary": 48, "secondary": 16, "layers": layers})
    watcher, index = Watcher(daemon, from_revision=1), Index(decoder)
    groups = {8: 0, 0: 1}
    compared = set()

    def check():
        follow(daemon, subscriber, index)
        expected = whole_blocks(watcher.read_to(daemon.status().revision))
        assert index.hashes() == {(groups[window], medium): hashes for (window, medium), hashes in expected.items()}
        compared.update(expected)

    rounds_of_load(daemon, check)
    assert compared == {(8, GPU), (8, CPU), (0, GPU), (0, CPU)}
    assert index.groups == {0: ("sliding_window", 8), 1: ("full_attention", None)}
    assert index.counts["AllBlocksCleared"] >= 2


def test_a_late_joiner_replays(bridged):
    daemon, subscriber = bridged()
    index = Index(MapDecoder())
    with Client(daemon.channel) as client:
        work(client, random.Random(1), 100)
    follow(daemon, subscriber, index)
    late, zmq_keys = Index(MapDecoder()), daemon.config["events"]["zmq"]
    joiner = Subscriber(zmq_keys["endpoint"], zmq_keys["replay_endpoint"])
    follow(daemon, joiner, late)
    assert late.hashes() == index.hashes() and late.counts == index.counts and joiner.replays == 1
    assert metric(daemon, "pagoda_zmq_incomplete_replays_total") == 0
    joiner.close()


def test_all_subscribers_are_one_row_of_the_status_page(bridged):
    daemon, subscriber = bridged()
    with Client(daemon.channel) as client:
        client.cache(1, range(9))
    follow(daemon, subscriber, Index(MapDecoder()))
    (row,) = daemon.told("subscribers", status_pb2.SubscriberList()).subscribers
    assert (row.kind, row.role) == (status_pb2.SUBSCRIBER_KIND_ZMQ, status_pb2.CALLER_ROLE_OPERATOR)
    assert (row.sent_revision, row.lag_events) == (daemon.status().revision, 0)
    assert metric(daemon, "pagoda_event_subscribers") == daemon.status().subscribers == 0, "the daemon does not know the ZMQ subscribers one by one"


def test_a_replay_in_the_newer_form_carries_the_topic(bridged):
    daemon, subscriber = bridged(zmq={"replay_topic": True, "topic": "events of mine"})
    with Client(daemon.channel) as client:
        client.cache(1, range(9))
    assert published(daemon) == 2
    second = (subscriber.first + 1).to_bytes(8, "big")
    subscriber.dealer.send_multipart([b"", second])
    assert subscriber.dealer.poll(20_000)
    empty, topic, seq, payload = subscriber.dealer.recv_multipart()
    assert (empty, topic, seq) == (b"", b"events of mine", second) and payload
    assert subscriber.dealer.poll(20_000)
    assert subscriber.dealer.recv_multipart() == [b"", b"", b"\xff" * 8, b""]


def cache_much(daemon, sequences):
    with Client(daemon.channel) as client:
        for number in range(sequences):
            client.cache(number + 1, [number * 1000 + i for i in range(240)])


def test_a_slow_subscriber_misses_batches_and_gets_them_by_replay(bridged):
    daemon, _ = bridged(zmq={"hwm": 2})
    zmq_keys = daemon.config["events"]["zmq"]
    slow = Subscriber(zmq_keys["endpoint"], zmq_keys["replay_endpoint"], hwm=1)
    index = Index(MapDecoder())
    follow(daemon, slow, index)
    with Client(daemon.channel) as client:
        client.cache(1, range(9))
    # The subscription exists when a batch arrives without a replay.
    while not slow.sub.poll(50):
        with Client(daemon.channel) as client:
            client.cache(1, random.choices(range(1000), k=9))
    cache_much(daemon, 1500)
    follow(daemon, slow, index)
    assert slow.replays > 0, "the subscriber was too fast and missed nothing"
    assert index.hashes() == {(None, medium): hashes for (_, medium), hashes in
                              whole_blocks(Watcher(daemon, from_revision=1).read_to(daemon.status().revision)).items()}


def test_a_bridge_that_the_log_has_passed_begins_again(bridged):
    daemon, subscriber = bridged(events={"max_events": 50, "flush_interval": "300ms"})
    index = Index(MapDecoder())
    rng = random.Random(3)
    with Client(daemon.channel) as client:
        for number in range(40):
            client.cache(number + 1, [rng.randrange(100) for _ in range(20)])
            follow(daemon, subscriber, index) if number == 20 else None
        daemon.wait_until(lambda daemon: metric(daemon, "pagoda_bridge_resets_total") > 0 or cache_more(client, rng))
        follow(daemon, subscriber, index)
        tokens = [rng.randrange(100) for _ in range(20)]
        client.cache(9999, tokens)
        follow(daemon, subscriber, index)
        assert client.match(tokens).matched_tokens == 19
    assert index.counts["AllBlocksCleared"] == metric(daemon, "pagoda_bridge_resets_total") + 1 > 1
    (hashes,) = index.hashes().values()
    assert len(hashes) == daemon.primary().cached_blocks, "the router has every cached block, and all are whole"
    assert subscriber.next == metric(daemon, "pagoda_zmq_batches_total"), "the numbers of the batches continue"


def cache_more(client, rng):
    for _ in range(60):
        client.cache(rng.randrange(10**6, 10**9), [rng.randrange(100) for _ in range(20)])
    return False


def test_namespaces_and_adapters_are_named(bridged, decoder):
    daemon, subscriber = bridged()
    with Client(daemon.channel) as client:
        client.cache(1, range(9), namespace=types_pb2.Namespace(lora_id=7, cache_salt="s"))
    _, payload = subscriber.batches_to(published(daemon))
    _, ((name, event),), _ = decoder.decode(payload)
    assert (name, event["lora_id"], event["lora_name"]) == ("BlockStored", 7, "7")
    assert event["extra_keys"] == [["7", "s"], ["7"]] and len(event["block_hashes"]) == 2


@pytest.mark.parametrize("keys, message", [
    ({"endpoint": "tcp://*:5557"}, "insecure"),
    ({"endpoint": "tcp://10.0.0.1:5557"}, "insecure"),
    ({"replay_endpoint": "ipc:///tmp/x"}, "events.zmq.endpoint is not"),
    ({"endpoint": "http://x"}, "is not tcp://HOST:PORT"),
    ({"endpoint": "ipc:///no/such/folder"}, "ZMQ cannot use"),
])
def test_an_endpoint_that_is_no_good_is_refused(start_daemon, tmp_path, keys, message):
    from pagoda_daemon import Daemon
    folder = tmp_path / "refused"
    folder.mkdir()
    daemon = Daemon(folder, events={"zmq": keys})
    assert daemon.run_to_its_end() == 1
    assert message in daemon.log.read_text()


def test_with_callers_the_socket_is_a_file_and_the_log_warns(bridged, tmp_path):
    from pagoda_daemon import Daemon
    folder = tmp_path / "refused"
    folder.mkdir()
    refused = Daemon(folder, operator_token="token-of-the-operator-0123456789", events={"zmq": {"endpoint": "tcp://[::1]:*"}})
    assert refused.run_to_its_end() == 1
    assert "callers must show credentials" in refused.log.read_text()
    daemon, _ = bridged(operator_token="token-of-the-operator-0123456789")
    assert "reads the tokens of every tenant" in daemon.log.read_text()
    without, _ = bridged()
    assert "reads the tokens of every tenant" not in without.log.read_text()


def free_endpoints():
    """Two TCP endpoints on loopback that were free a moment ago."""
    with socket.socket() as first, socket.socket() as second:
        for one in (first, second):
            one.bind(("127.0.0.1", 0))
        return [f"tcp://127.0.0.1:{one.getsockname()[1]}" for one in (first, second)]


def test_with_mode_listen_a_subscriber_connects_on_loopback(start_daemon):
    endpoint, replay = free_endpoints()
    daemon = start_daemon(server={"http_address": "127.0.0.1:0"},
                          events={"zmq": {"endpoint": endpoint, "replay_endpoint": replay, "mode": "listen"}})
    said = daemon.log.read_text()
    assert f"listens on {endpoint}" in said and f"listens on {replay}" in said and "connects to" not in said
    subscriber = Subscriber(endpoint, replay)
    with Client(daemon.channel) as client:
        client.cache(1, range(9))
    assert subscriber.batches_to(published(daemon))
    subscriber.close()


def test_by_vllms_rule_the_daemon_connects_and_says_so(start_daemon):
    endpoint, replay = free_endpoints()
    context = zmq.Context()
    router = context.socket(zmq.SUB)
    router.subscribe("kv@")
    router.bind(endpoint)
    daemon = start_daemon(server={"http_address": "127.0.0.1:0"}, events={"zmq": {"endpoint": endpoint}})
    said = daemon.log.read_text()
    assert f"connects to {endpoint}" in said and "events.zmq.mode: listen" in said and "listens on" not in said
    number = 0
    while not router.poll(100):  # Batches are lost until the two sockets are connected.
        assert number < 600, "the daemon has not connected"
        number += 1
        with Client(daemon.channel) as client:
            client.cache(number, range(10 * number, 10 * number + 9))
    router.close(linger=0)
    context.term()


def test_the_classes_of_vllm_itself_decode_it(bridged):
    """PAGODA_VLLM_KV_EVENTS: a folder with VLLM_FILES out of vLLM's wheel."""
    folder = os.environ.get("PAGODA_VLLM_KV_EVENTS")
    if folder is None:
        pytest.skip(f"PAGODA_VLLM_KV_EVENTS names no folder with {' and '.join(VLLM_FILES)}")
    if (msgspec := install_msgspec()) is None:
        pytest.skip("PyPI has not answered, so there is no msgspec for vLLM's classes")
    classes = load_vllm(pathlib.Path(folder))
    real = msgspec.msgpack.Decoder(classes.KVEventBatch)

    class RealDecoder:
        def decode(self, payload):
            batch = real.decode(payload)
            known = ("block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name", "extra_keys",
                     "group_idx", "kv_cache_spec_kind", "kv_cache_spec_sliding_window")
            return batch.ts, [(type(event).__name__, {key: value for key, value in msgspec.structs.asdict(event).items() if key in known})
                              for event in batch.events], batch.data_parallel_rank

    daemon, subscriber = bridged(cache={"primary": 32, "secondary": 16})
    watcher, index = Watcher(daemon, from_revision=1), Index(RealDecoder())

    def check():
        follow(daemon, subscriber, index)
        assert index.hashes() == {(None, medium): hashes for (_, medium), hashes in
                                  whole_blocks(watcher.read_to(daemon.status().revision)).items()}

    rounds_of_load(daemon, check)
    assert set(index.counts) == {"BlockStored", "BlockRemoved", "AllBlocksCleared"}


# The files with the classes and with the type of their hashes.
VLLM_FILES = "vllm/distributed/kv_events.py", "vllm/v1/core/kv_cache_utils.py"


def load_vllm(folder):
    """vLLM's module of the classes. Its imports from the rest of vLLM, and so of PyTorch, are
    replaced by mere names. The exception is the type of a hash, the only one that takes part in
    decoding."""
    path, hashes = (folder / name for name in VLLM_FILES)
    (hash_type,) = re.findall(r"^ExternalBlockHash: TypeAlias = ([a-z| ]+)$", hashes.read_text(), re.MULTILINE)
    for name in ("vllm", "vllm.config", "vllm.config.kv_events", "vllm.logger", "vllm.utils", "vllm.utils.network_utils", "vllm.v1",
                 "vllm.v1.core", "vllm.v1.core.kv_cache_utils"):
        sys.modules[name] = types.ModuleType(name)
    sys.modules["vllm.config.kv_events"].KVEventsConfig = object
    sys.modules["vllm.logger"].init_logger = lambda name: None
    sys.modules["vllm.utils.network_utils"].__getattr__ = lambda name: None
    sys.modules["vllm.v1.core.kv_cache_utils"].ExternalBlockHash = eval(hash_type, {"bytes": bytes, "int": int})
    spec = importlib.util.spec_from_file_location("vllm_kv_events", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
