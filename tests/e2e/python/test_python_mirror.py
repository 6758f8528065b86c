"""A router's mirror of the cache answers like the daemon for every prompt, whenever it began and
whatever happened meanwhile."""

import contextlib
import datetime
import random
import threading

import pagoda
import pytest
from tcp_proxy import TcpProxy

TOKENS_PER_BLOCK = 4
PRIMARY, SECONDARY = pagoda.Tier.PRIMARY, pagoda.Tier.SECOND


def follow(watch, mirror, revision=None):
    """Applies items until the mirror is whole, and then up to the revision."""
    while not mirror.whole or revision is not None and watch.revision < revision:
        mirror.apply(next(watch))


def prompts(dice, count):
    """Prompts that begin like others: of few tokens, in few namespaces."""
    names = [None, pagoda.Namespace(cache_salt="a"), pagoda.Namespace(lora_id=7, cache_salt="a"), pagoda.Namespace(lora_id=0)]
    for _ in range(count):
        yield [dice.randrange(2) for _ in range(dice.randrange(1, 60))], dice.choice(names)


def cache(client, tokens, namespace=None, **extras):
    with contextlib.suppress(pagoda.Exhausted), client.sequence(tokens, namespace=namespace, **extras) as sequence:
        sequence.wait_ready()
        sequence.commit(computed=len(tokens))


def check(client, mirror, asked):
    """While nothing changes, both find the same number of whole blocks. Returns how many tokens
    they found."""
    found = 0
    for tokens, namespace in asked:
        told = client.match(tokens, namespace=namespace).matched_tokens
        matched = mirror.match(tokens, namespace=namespace).matched_tokens
        assert matched == told // TOKENS_PER_BLOCK * TOKENS_PER_BLOCK, (tokens, namespace)
        found += matched
    return found


def contents(mirror):
    """Whether two mirrors are one."""
    return {size: window.blocks for size, window in mirror._windows.items()}


@pytest.fixture
def daemon(start_daemon):
    return start_daemon(cache={"primary": 200, "secondary": 100})


def test_a_router_that_comes_late_says_what_the_daemon_says(daemon):
    dice = random.Random(3)
    with pagoda.connect(daemon.grpc_address) as client:
        for tokens, namespace in prompts(dice, 60):
            cache(client, tokens, namespace)
        early, late = pagoda.Mirror(TOKENS_PER_BLOCK), pagoda.Mirror(TOKENS_PER_BLOCK)
        with pagoda.watch(daemon.grpc_address, from_revision=1) as from_the_first, pagoda.watch(daemon.grpc_address, snapshot=True) as watch:
            assert (late.whole, late.revision, len(late)) == (False, 0, 0)
            follow(watch, late, client.revision)
            assert check(client, late, prompts(random.Random(4), 50)) > 50
            for tokens, namespace in prompts(dice, 60):
                cache(client, tokens, namespace)
            client.invalidate([0], namespace=pagoda.Namespace(lora_id=0))
            follow(watch, late, client.revision)
            follow(from_the_first, early, client.revision)
            assert check(client, late, prompts(random.Random(4), 50)) > 50
            assert contents(late) == contents(early) and late.revision == early.revision == client.revision
            assert len(late) == sum(tier.cached_blocks - tier.duplicate_blocks for tier in daemon.status().windows[0].tiers)
            client.reset_prefix_cache()
            follow(watch, late, client.status().revision)
            assert len(late) == 0 and late.whole


def test_a_mirror_knows_the_tier_and_what_tokens_have_beside(daemon):
    item = pagoda.MultimodalItem(bytes(range(32)), token_start=2, token_count=7)
    extras = {"extra_token_ids": [0, 5] * 6, "multimodal_items": [item]}
    mirror = pagoda.Mirror(TOKENS_PER_BLOCK)
    with pagoda.connect(daemon.grpc_address) as client, client.watch(snapshot=True) as watch:
        cache(client, range(12))
        cache(client, range(12), **extras)
        follow(watch, mirror, client.revision)
        assert mirror.match(range(13)) == (12, PRIMARY)
        assert mirror.match(range(12)) == (8, PRIMARY), "the last token must be computed for its logits"
        assert mirror.match([*range(8), 99, 99, 99, 99, 99]) == (8, PRIMARY)
        assert mirror.match([99] * 9) == (0, None)
        assert mirror.match(range(12), **extras) == (8, PRIMARY)
        assert mirror.match(range(12), extra_token_ids=[0, 5] * 6) == (0, None)
        moved = client.offload(range(12))
        client.wait(moved.ready_ticket)
        follow(watch, mirror, client.status().revision)
        assert mirror.match(range(13)) == (12, SECONDARY)
        with client.sequence(range(9)) as sequence:  # Onboards two blocks.
            sequence.wait_ready()
        follow(watch, mirror, client.status().revision)
        assert mirror.match(range(9)) == (8, PRIMARY)
        assert mirror.match(range(13)) == (12, SECONDARY)
        hashes = pagoda.block_hashes(range(12), TOKENS_PER_BLOCK)
        assert mirror.find(hashes) == (12, SECONDARY) and mirror.find([]) == (0, None)


def test_a_length_counts_where_every_window_has_it(start_daemon):
    layers = [{"count": 1, "window": 8, "num_kv_heads": 2, "head_dim": 8}, {"count": 1, "num_kv_heads": 2, "head_dim": 8}]
    daemon = start_daemon(cache={"layers": layers, "primary": [16, 24]})
    mirror, dice = pagoda.Mirror(TOKENS_PER_BLOCK), random.Random(5)
    with pagoda.connect(daemon.grpc_address) as client, client.watch(snapshot=True) as watch:
        assert sorted(window.window_size for window in client.cache.windows) == [0, 8]
        shorter = 0
        known = []
        for _ in range(25):
            known.append([dice.randrange(2) for _ in range(dice.randrange(20, 60))])
            cache(client, known[-1])
            tokens = known[dice.randrange(max(0, len(known) - 4), len(known))]
            for length in range(9, len(tokens) + 1, 8):
                told = client.match(tokens[:length]).matched_tokens
                follow(watch, mirror, client.revision)
                matched = mirror.match(tokens[:length]).matched_tokens
                assert matched <= told
                assert client.match(tokens[:matched + 1]).matched_tokens == matched, "the mirror finds no more than the daemon"
                # Nor does it find less: it finds all whole blocks that the daemon finds.
                blocks = told // TOKENS_PER_BLOCK * TOKENS_PER_BLOCK
                assert matched == blocks or client.match(tokens[:blocks + 1]).matched_tokens < blocks
                shorter += matched < (length - 1) // TOKENS_PER_BLOCK * TOKENS_PER_BLOCK
        assert shorter, "no window ever lacked a block"


def test_mirrors_stay_true_under_load_and_broken_connections(daemon):
    stop = threading.Event()

    def work(seed):
        with pagoda.connect(daemon.grpc_address) as client:
            for tokens, namespace in prompts(random.Random(seed), 1_000_000):
                cache(client, tokens, namespace)
                if stop.is_set():
                    return

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(2)]
    with TcpProxy(daemon.grpc_address) as proxy, pagoda.watch(proxy.address, snapshot=True) as watch:
        first = pagoda.Mirror(TOKENS_PER_BLOCK)
        for worker in workers:
            worker.start()
        try:
            follow(watch, first)
            for round_ in range(5):
                follow(watch, first, watch.revision + 50)
                proxy.cut()
                late = pagoda.Mirror(TOKENS_PER_BLOCK)
                with pagoda.watch(daemon.grpc_address, snapshot=True) as joining:
                    follow(joining, late)
                    # Events arrive in messages of several revisions. Read both to the same
                    # revision.
                    follow(watch, first, late.revision)
                    follow(joining, late, first.revision)
                    assert late.revision == first.revision and contents(late) == contents(first), round_
        finally:
            stop.set()
            for worker in workers:
                worker.join()
        with pagoda.connect(daemon.grpc_address) as client:
            follow(watch, first, client.status().revision)
            check(client, first, prompts(random.Random(9), 50))


def test_a_mirror_begins_anew_with_another_daemon(start_daemon):
    daemon, successor = start_daemon(), start_daemon()
    mirror = pagoda.Mirror(TOKENS_PER_BLOCK)
    with TcpProxy(daemon.grpc_address) as proxy, pagoda.watch(proxy.address, snapshot=True) as watch:
        with pagoda.connect(daemon.grpc_address) as client:
            cache(client, range(9))
            follow(watch, mirror, client.revision)
        with pagoda.connect(successor.grpc_address) as client:
            cache(client, [7] * 9)
            proxy.retarget(successor.grpc_address)
            proxy.cut()
            while watch.epoch != client.epoch:
                mirror.apply(next(watch))
            follow(watch, mirror, client.revision)
            assert (mirror.match(range(9)), mirror.match([7] * 9)) == ((0, None), (8, PRIMARY))


NOW = datetime.datetime.now(datetime.timezone.utc)
CREATED = pagoda.Created(1, 1, NOW, 0, {PRIMARY: 64}, ())


def stored(revision, block_id, parent=None):
    block = pagoda.StoredBlock(block_id, 1000 + block_id, (1, 2, 3, 4), PRIMARY, 35, (), ())
    return pagoda.Stored(1, revision, NOW, 0, None if parent is None else 1000 + parent, parent, pagoda.Namespace(), (block,))


@pytest.mark.parametrize("items", [
    [stored(5, 1)],  # It begins in the middle.
    [CREATED, stored(2, 1), pagoda.Gap("REVISION_COMPACTED", 1, 2, 1, 9)],
    [CREATED, stored(2, 1), stored(3, 1)],
    [CREATED, stored(2, 2, parent=1)],
    [CREATED, pagoda.Removed(1, 2, NOW, 0, pagoda.RemovalReason.EVICTED, (1,), (1001,), False)],
    [CREATED, pagoda.Updated(1, 2, NOW, 0, 1, 1001, (PRIMARY, SECONDARY), None)],
    [pagoda.SnapshotBegin(1, ""), stored(0, 1)],  # The window was never created.
])
def test_what_does_not_fit_is_refused(items):
    mirror = pagoda.Mirror(TOKENS_PER_BLOCK)
    *before, last = items
    for item in before:
        mirror.apply(item)
    with pytest.raises(ValueError):
        mirror.apply(last)
    assert not mirror.whole
    for item in (pagoda.SnapshotBegin(1, ""), CREATED, stored(0, 2, parent=1), stored(0, 1), pagoda.SnapshotEnd(1, 9)):
        mirror.apply(item)  # Within a snapshot a child may come before its parent.
    assert (mirror.whole, mirror.revision, len(mirror)) == (True, 9, 2)
