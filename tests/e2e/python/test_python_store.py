"""Prefixes of other machines in Python: two daemons with a store between them, and as each other's
source. What one client writes, the other one reads, byte for byte."""

import asyncio
import random
import time

import numpy as np
import pagoda
import pagoda.aio
import pytest
from caches_daemon import CachesDaemon
from pagoda import FetchOutcome
from redis_server import RedisServer

TOKENS_PER_BLOCK = 4
MARGIN = 3.0  # Seconds, for a machine with other load.

pytestmark = pytest.mark.skipif(RedisServer.program is None, reason="redis-server is not installed")


@pytest.fixture
def redis():
    with RedisServer() as server:
        yield server


class Machine:
    """A daemon with a cache, and a client of it."""

    def __init__(self, folder, store, **peers):
        folder.mkdir()
        self.daemon = CachesDaemon(folder, store={"servers": [store], "publish": {"min_uses": 0, "delay": "0s"}} if store else {},
                                   peers={"address": "127.0.0.1:0", "sources": ["127.0.0.1:*"]} | peers, fetch={"base": "20s"}).start()
        self.daemon.open("shared")
        self.client = pagoda.connect(self.daemon.endpoint, cache="shared")
        (self.pool,) = self.client.pools()

    def write(self, tokens, seed):
        """Caches a prompt with random bytes, and returns the bytes of its blocks."""
        with self.client.sequence(tokens) as sequence:
            sequence.wait_ready()
            slots = sequence.table.slots
            content = np.random.default_rng(seed).standard_normal((len(slots), *self.pool.array.shape[1:]), np.float32)
            self.pool.writable_array[slots] = content
            sequence.commit(computed=len(tokens))
            return content

    def read(self, tokens):
        """The bytes of the cached blocks of a prompt, and their tokens."""
        with self.client.sequence(tokens, whole_blocks_only=True) as sequence:
            sequence.wait_ready()
            return self.pool.array[sequence.table.slots[:sequence.matched_tokens // TOKENS_PER_BLOCK]].copy(), sequence.matched_tokens

    def close(self):
        self.client.close()
        assert self.daemon.terminate() == 0


@pytest.fixture
def machines(tmp_path):
    made = []

    def make(name, *args, **options):
        made.append(Machine(tmp_path / name, *args, **options))
        return made[-1]

    yield make
    try:
        for machine in made:
            machine.close()
    finally:
        for machine in made:
            machine.daemon.kill()


def prompt(seed, length=42):
    rng = random.Random(seed)
    return [rng.randrange(1000) for _ in range(length)]


def wait_for(happens):
    deadline = time.monotonic() + 60
    while not happens():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_published_prefix_comes_with_its_bytes(redis, machines):
    a, b = machines("a", redis.address), machines("b", redis.address)
    tokens = prompt(1)
    written = a.write(tokens, 1)
    wait_for(lambda: redis.keys() == 10)
    assert b.client.match(tokens).cached_tokens == 0
    assert b.client.fetch_prefix(tokens, deadline=10) == pagoda.FetchedPrefix(FetchOutcome.FETCHED, 40, 40)
    read, matched = b.read(tokens)
    assert matched == 40 and read.tobytes() == written[:10].tobytes()
    assert b.client.fetch_prefix(tokens, deadline=10) == pagoda.FetchedPrefix(FetchOutcome.CACHED, 40, 0)


def test_a_longer_prompt_gets_what_the_store_has_behind_its_own_blocks(redis, machines):
    a, b = machines("a", redis.address), machines("b", redis.address)
    tokens = prompt(2)
    written = a.write(tokens, 2)
    wait_for(lambda: redis.keys() == 10)
    b.pool.writable_array[...] = 0
    with b.client.sequence(tokens[:12]) as sequence:
        b.pool.writable_array[sequence.table.slots] = written[:3]
        sequence.commit(computed=12)
    fetched = b.client.fetch_prefix([*tokens, *range(100)], deadline=10)
    assert (fetched.matched_tokens, fetched.fetched_tokens) == (40, 28) and fetched.outcome in (FetchOutcome.FETCHED, FetchOutcome.MISSING)
    assert b.read([*tokens, *range(100)])[0].tobytes() == written[:10].tobytes()


def test_what_nobody_has_is_missing(redis, machines):
    b = machines("b", redis.address)
    assert b.client.fetch_prefix(prompt(3), deadline=10) == pagoda.FetchedPrefix(FetchOutcome.MISSING, 0, 0)


def test_a_namespace_is_part_of_what_is_fetched(redis, machines):
    a, b = machines("a", redis.address), machines("b", redis.address)
    a.write(prompt(4), 4)
    wait_for(lambda: redis.keys() == 10)
    salted = pagoda.Namespace(cache_salt="another user")
    assert b.client.fetch_prefix(prompt(4), namespace=salted, deadline=10).outcome is FetchOutcome.MISSING
    assert b.client.fetch_prefix(prompt(4), deadline=10).outcome is FetchOutcome.FETCHED


def test_a_fetch_can_be_polled_by_both_kinds_of_clients(redis, machines):
    a, b, c = (machines(name, redis.address) for name in "abc")
    a.write(prompt(5), 5)
    wait_for(lambda: redis.keys() == 10)
    coming = b.client.fetch_prefix_async(prompt(5), deadline=10)
    wait_for(coming.done)
    assert coming.result() == pagoda.FetchedPrefix(FetchOutcome.FETCHED, 40, 40)

    async def run():
        async with pagoda.aio.connect(c.daemon.endpoint, cache="shared") as client:
            return await client.fetch_prefix_async(prompt(5), deadline=10), await client.export_prefix(prompt(5), lease=5)

    fetched, exported = asyncio.run(run())
    assert fetched == pagoda.FetchedPrefix(FetchOutcome.FETCHED, 40, 40) and exported.exported_tokens == 40


def test_another_daemon_is_the_source(machines):
    a, b = machines("a", None), machines("b", None)
    tokens = prompt(6)
    written = a.write(tokens, 6)
    assert b.client.fetch_prefix(tokens, deadline=10).outcome is FetchOutcome.NO_SOURCE
    exported = a.client.export_prefix(tokens, lease=60)
    assert exported.exported_tokens == 40 and exported.stored_tokens == 0
    assert [pin.pin_id for pin in a.client.list_pins().pins] == [exported.pin_id]
    assert b.client.fetch_prefix(tokens, source=exported.source, deadline=10) == pagoda.FetchedPrefix(FetchOutcome.FETCHED, 40, 40)
    assert b.read(tokens)[0].tobytes() == written[:10].tobytes()
    a.client.unpin(exported.pin_id)
    assert not a.client.list_pins().pins


def test_an_export_also_writes_into_the_store(redis, machines):
    a, b = machines("a", redis.address), machines("b", redis.address)
    tokens = prompt(7)
    a.write(tokens, 7)
    exported = a.client.export_prefix(tokens, lease=60, to_store=True, timeout=20)
    assert exported.stored_tokens == 40 and redis.keys() == 10
    assert b.client.fetch_prefix(tokens, deadline=10).fetched_tokens == 40
    a.client.unpin(exported.pin_id)


def test_a_source_that_the_daemon_does_not_allow_is_refused(machines):
    a, b = machines("a", None), machines("b", None, sources=["10.1.*.*:7072"])
    a.write(prompt(8), 8)
    source = a.client.export_prefix(prompt(8), lease=5).source
    with pytest.raises(pagoda.PermissionDenied, match=r"peers\.sources"):
        b.client.fetch_prefix(prompt(8), source=source, deadline=10)
    with pytest.raises(pagoda.BadRequest, match="HOST:PORT"):
        b.client.fetch_prefix(prompt(8), source="no address", deadline=10)


@pytest.mark.parametrize("fault", ["killed", "paused", "another daemon is away"])
def test_a_source_that_fails_is_a_miss_by_the_deadline(fault, redis, machines):
    a, b = machines("a", redis.address), machines("b", redis.address)
    a.write(prompt(9), 9)
    wait_for(lambda: redis.keys() == 10)
    source = None
    if fault == "killed":
        redis.kill()
    elif fault == "paused":
        redis.pause()
    else:
        source = "127.0.0.1:1"
    for deadline in (0.3, 1.0):
        started = time.monotonic()
        fetched = b.client.fetch_prefix(prompt(9), source=source, deadline=deadline)
        assert fetched.outcome in (FetchOutcome.FAILED, FetchOutcome.MISSING)
        assert (fetched.matched_tokens, fetched.fetched_tokens) == (0, 0)
        assert time.monotonic() - started < deadline + MARGIN
    b.write(prompt(9), 10)  # The engine computes, and the cache takes it.
    assert b.read(prompt(9))[1] == 40


def test_a_daemon_answers_only_others_that_show_its_token(tmp_path, machines):
    for name, token in (("tokens", "a" * 32), ("right", "a" * 32), ("wrong", "b" * 32)):
        (tmp_path / name).touch(mode=0o600)
        (tmp_path / name).write_text(f"{token}\n")
    a = machines("a", None, tokens_file=str(tmp_path / "tokens"))
    a.write(prompt(10), 10)
    source = a.client.export_prefix(prompt(10), lease=5).source
    for name, outcome in (("wrong", FetchOutcome.FAILED), ("right", FetchOutcome.FETCHED)):
        b = machines(f"b-{name}", None, source_token_file=str(tmp_path / name))
        assert b.client.fetch_prefix(prompt(10), source=source, deadline=1).outcome is outcome, name
