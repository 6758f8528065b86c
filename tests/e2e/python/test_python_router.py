"""pagoda.Router with real daemons: it finds what they have, knows exactly their chunks after each
gap, and ignores a dead one within its lease."""

import contextlib
import random
import signal
import time

import pagoda
import pytest
from tcp_proxy import TcpProxy

TOKENS_PER_BLOCK = 4
CHUNK = 2 * TOKENS_PER_BLOCK
LEASE = 2.0
MARGIN = 5.0  # Seconds, for a machine with other load.


def prompts(dice, count):
    """Prompts that begin like others."""
    for _ in range(count):
        yield [dice.randrange(2) for _ in range(dice.randrange(1, 60))]


def cache(client, tokens):
    with contextlib.suppress(pagoda.Exhausted), client.sequence(tokens) as sequence:
        sequence.wait_ready()
        sequence.commit(computed=len(tokens))


def wait_for(happens):
    deadline = time.monotonic() + 60
    while not happens():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.fixture
def daemons(start_daemon):
    return {name: start_daemon(cache={"primary": 200, "secondary": 100}, events={"max_events": 50}) for name in ("a", "b", "c")}


@pytest.fixture
def router(daemons):
    nodes = [pagoda.RouterNode(name, daemon.grpc_address) for name, daemon in daemons.items()]
    with pagoda.Router(nodes, chunk_tokens=CHUNK, lease=LEASE) as router:
        assert router.wait(20)
        yield router


def state(router, name):
    return next(node for node in router.nodes() if node.node.name == name)


def mirror_of(daemon):
    """All cached blocks, from another stream with all content."""
    mirror = pagoda.Mirror(TOKENS_PER_BLOCK)
    with pagoda.watch(daemon.grpc_address, snapshot=True) as watch:
        while not mirror.whole:
            mirror.apply(next(watch))
    return mirror


def test_it_finds_what_the_daemons_have(daemons, router):
    dice = random.Random(3)
    found = 0
    with contextlib.ExitStack() as stack:
        clients = {name: stack.enter_context(pagoda.connect(daemon.grpc_address)) for name, daemon in daemons.items()}
        for _ in range(10):
            for name, client in clients.items():
                for tokens in prompts(dice, dice.randrange(30)):
                    cache(client, tokens)
                if dice.randrange(4) == 0:
                    client.invalidate([0])
                wait_for(lambda name=name, client=client: state(router, name).revision == client.status().revision)
            mirrors = {name: mirror_of(daemon) for name, daemon in daemons.items()}
            for tokens in prompts(dice, 60):
                whole = pagoda.block_hashes(tokens, TOKENS_PER_BLOCK)[:len(tokens) // TOKENS_PER_BLOCK]
                has = {name: mirror.find(whole).matched_tokens // CHUNK * CHUNK for name, mirror in mirrors.items()}
                expected = {name: min(count, len(tokens) - 1) for name, count in has.items() if count}
                assert {one.node.name: one.tokens for one in router.find(tokens).nodes} == expected
                found += len(expected)
    assert found > 100


def chunks_of(daemon):
    """The tier of each chunk, from another stream."""
    chunks = {}
    with pagoda.watch(daemon.grpc_address, snapshot=True, content="hashes", chunk_tokens=CHUNK) as watch:
        while not isinstance(item := next(watch), pagoda.SnapshotEnd):
            if isinstance(item, pagoda.Stored):
                chunks.update((block.block_hash, block.tier) for block in item.blocks)
    return chunks


def test_records_equal_each_daemons_chunks_after_every_gap(daemons):
    dice = random.Random(5)
    largest = 0
    with contextlib.ExitStack() as stack:
        proxies = {name: stack.enter_context(TcpProxy(daemon.grpc_address)) for name, daemon in daemons.items()}
        nodes = [pagoda.RouterNode(name, proxy.address) for name, proxy in proxies.items()]
        router = stack.enter_context(pagoda.Router(nodes, chunk_tokens=CHUNK, lease=60))
        for round_ in range(24):
            for name, daemon in daemons.items():
                if round_ % 8 == 5 and name == dice.choice("abc"):
                    daemon.kill()
                    daemon.start()
                if dice.randrange(2):
                    proxies[name].retarget("127.0.0.1:9")  # Nothing listens there.
                proxies[name].cut()
                with pagoda.connect(daemon.grpc_address) as client:
                    for tokens in prompts(dice, dice.randrange(30)):
                        client.offload(tokens) if dice.randrange(5) == 0 else cache(client, tokens)
                    if dice.randrange(5) == 0:
                        client.reset_prefix_cache()
                    told = client.status()
                proxies[name].retarget(daemon.grpc_address)
                expected = chunks_of(daemon)
                position = (pagoda.NodeState.FOLLOWING, told.epoch, told.revision)
                wait_for(lambda name=name, position=position: (state(router, name).state, state(router, name).epoch,
                                                               state(router, name).revision) == position)
                assert router._nodes[name].records == expected
                largest = max(largest, len(expected))
        gaps = sum(node.gaps for node in router.nodes())
    assert gaps > 15 and largest > 8, (gaps, largest)


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_a_dead_daemon_is_ignored_within_its_lease(daemons, router, end):
    tokens = list(range(40))
    for daemon in daemons.values():
        with pagoda.connect(daemon.grpc_address) as client:
            cache(client, tokens)
    wait_for(lambda: len(router.find(tokens).nodes) == 3)
    daemons["a"].process.send_signal(end)
    ended = time.monotonic()
    wait_for(lambda: {one.node.name for one in router.find(tokens).nodes} == {"b", "c"})
    assert time.monotonic() - ended < LEASE + MARGIN
    if end == signal.SIGSTOP:
        wait_for(lambda: state(router, "a").state is pagoda.NodeState.DEAD)
        daemons["a"].process.send_signal(signal.SIGCONT)
        wait_for(lambda: len(router.find(tokens).nodes) == 3)
    else:
        daemons["a"].kill()
