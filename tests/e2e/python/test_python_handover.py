"""The connectors' common part between machines: a store, another daemon as the source, and prefill
and decode apart. The engine has no model, and checks each byte of KV that it reads."""

import random
import time

import pagoda
import pytest
from caches_daemon import CachesDaemon
from pagoda.connector import HostMover, Handover, Handovers, Sources
from pagoda.connector import fetch as fetches
from redis_server import RedisServer
from toy_engine import LateMover, ToyEngine

SIZE = 4  # Tokens of a block.
MANY = 10_000_000  # Steps: an engine without work takes many of them while a fetch is under way.
MARGIN = 5.0  # Seconds, for a machine with other load.
DEADLINE = 3.0
LEASE = 60.0

pytestmark = pytest.mark.skipif(RedisServer.program is None, reason="redis-server is not installed")


@pytest.fixture
def redis():
    with RedisServer() as server:
        yield server


@pytest.fixture
def daemons(tmp_path):
    """daemons(store, ...) is a daemon that answers others and fetches from them."""
    made = []

    def make(store=None, **peers):
        folder = tmp_path / f"daemon-{len(made)}"
        folder.mkdir()
        made.append(CachesDaemon(folder, store={"servers": [store], "publish": {"min_uses": 0, "delay": "0s"}} if store else {},
                                 peers={"address": "127.0.0.1:0", "sources": ["127.0.0.1:*"]} | peers, fetch={"base": "60s"}).start())
        return made[-1]

    yield make
    try:
        for daemon in made:
            daemon.wait_until(lambda daemon: all(cache.sessions <= 1 for cache in daemon.caches().values()))  # One is the exchange's.
            assert daemon.terminate() == 0
    finally:
        for daemon in made:
            daemon.kill()


@pytest.fixture
def engines(daemons):
    """engines(daemon, ...) is a connected engine. It asks and hands over. `asked` counts its
    fetches. All are closed at the end, before the daemons."""
    made = []

    def make(daemon, **options):
        options = {"host": "2MiB", "sources": Sources(), "handovers": Handovers(lease=LEASE), "fetch_deadline": 20.0} | options
        engine = ToyEngine(daemon.endpoint, **options)
        made.append(engine)
        assert engine.link.wait(60)
        engine.asked = []
        client = engine.link.client
        begin = client.fetch_prefix_async

        def counted(tokens, **named):
            engine.asked.append(named["source"])
            return begin(tokens, **named)

        client.fetch_prefix_async = counted
        return engine

    yield make
    for engine in made:
        engine.close()


def prompts(seed, count, longest=90):
    rng = random.Random(seed)
    return [[rng.randrange(1000) for _ in range(rng.randrange(2 * SIZE, longest))] for _ in range(count)]


def whole(asked):
    return [(len(prompt) - 1) // SIZE * SIZE for prompt in asked]


def commit(engine):
    with engine.side._lock:
        engine.side._do_work()


def wait_for(happens):
    deadline = time.monotonic() + 60
    while not happens():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def one_by_one(engine, asked, **options):
    return [engine.run([prompt], steps=MANY, **options)[0] for prompt in asked]


def published(engine, asked, redis, others=()):
    """Computes the prompts, until the store has all their blocks, and those of the prompts that
    other machines publish."""
    assert engine.run(asked, steps=MANY) == [0] * len(asked)
    commit(engine)
    blocks = {tuple(prompt[:end]) for prompt in [*asked, *others] for end in range(SIZE, len(prompt) + 1, SIZE)}
    wait_for(lambda: redis.keys() == len(blocks))


@pytest.mark.parametrize("shape", [{}, {"ranks": 2}, {"stages": 2}], ids=str)
def test_what_one_machine_computed_is_a_hit_on_another(shape, redis, daemons, engines):
    first, second = (engines(daemons(redis.address), **shape) for _ in range(2))
    asked = prompts(1, 8)
    published(first, asked, redis)
    assert second.run(asked, steps=MANY) == whole(asked)
    assert second.failed_loads == 0
    counts = second.side.take_counts()
    assert counts.remote_hit_tokens == counts.hit_tokens == sum(whole(asked)) and counts.disk_hit_tokens == 0
    assert one_by_one(second, asked) == whole(asked)
    counts = second.side.take_counts()
    assert counts.hit_tokens == sum(whole(asked)) and counts.remote_hit_tokens == 0, "they are in the memory of this machine now"
    assert len(second.asked) == len(asked), "what is there is not asked for"


def test_a_request_asks_once(redis, daemons, engines):
    engine = engines(daemons(redis.address))
    asked = prompts(2, 5)
    engine.run(asked, generate=5, steps=MANY)
    assert engine.asked == [None] * len(asked)


def test_a_daemon_without_a_store_is_asked_once(daemons, engines):
    engine = engines(daemons())
    one_by_one(engine, prompts(3, 5))
    assert engine.asked == [None]


def test_another_session_may_have_a_store(redis, daemons, engines):
    """The daemon is restarted with one."""
    daemon = daemons()
    engine = engines(daemon)
    one_by_one(engine, prompts(3, 2))
    daemon.terminate()
    daemon.config["store"] = {"servers": [redis.address], "publish": {"min_uses": 0, "delay": "0s"}}
    daemon.start()
    published(engines(daemons(redis.address)), prompts(4, 3), redis)
    wait_for(lambda: engine.link.client is not None and engine.link.client.session_error is None)
    wait_for(lambda: sum(one_by_one(engine, prompts(4, 3))) and engine.side.take_counts().remote_hit_tokens)


def test_an_engine_that_is_not_to_ask_does_not(redis, daemons, engines):
    published(engines(daemons(redis.address)), prompts(5, 3), redis)
    for sources in (None, Sources(store=False)):
        engine = engines(daemons(redis.address), sources=sources)
        assert one_by_one(engine, prompts(5, 3)) == [0] * 3 and engine.asked == []


@pytest.mark.parametrize("fault", ["killed", "paused"])
def test_a_store_that_fails_costs_its_deadline_once_and_blocks_no_step(fault, redis, daemons, engines):
    first, second = engines(daemons(redis.address)), engines(daemons(redis.address), fetch_deadline=DEADLINE)
    asked = prompts(6, 4)
    published(first, asked, redis)
    redis.kill() if fault == "killed" else redis.pause()
    started = time.monotonic()
    request = second.add(asked[0])
    longest = 0.0
    while request.tables is None:
        before = time.monotonic()
        second.step()
        longest = max(longest, time.monotonic() - before)
        time.sleep(0.001)
    assert longest < DEADLINE / 2, "a step does not wait for the store"
    assert time.monotonic() - started < DEADLINE + fetches.GRACE_SECONDS + MARGIN
    second.end(request)
    started = time.monotonic()
    assert one_by_one(second, asked[1:]) == [0] * 3
    assert second.asked == [None] and time.monotonic() - started < DEADLINE, "the store that failed is left alone for a while"
    assert second.side.take_counts().lost_sessions == 0


def test_a_store_that_is_back_is_asked_again(redis, daemons, engines):
    first, second = engines(daemons(redis.address)), engines(daemons(redis.address), fetch_deadline=0.5, sources=Sources(pause=0.2))
    redis.kill()
    missed = prompts(7, 1)
    assert one_by_one(second, missed) == [0]
    redis.start()
    asked = prompts(8, 60)
    # The second machine publishes its prompt too, when it finds the store again.
    published(first, asked, redis, others=missed)
    hits = []
    for prompt in asked:
        time.sleep(0.1)
        hits += one_by_one(second, [prompt])
        if hits[-1]:
            break
    assert hits[-1] == whole(asked)[len(hits) - 1]


def finish(engine, request, hands_over=False):
    """Computes the request's tokens and ends it."""
    while request.tables is None or request.loading or request.computed < len(request.tokens):
        engine.step()
    return engine.end(request, hands_over=hands_over)


def hand_over(engine, prompt):
    """The prefill side."""
    return finish(engine, engine.add(prompt), hands_over=True)


def take_over(engine, prompt, handover):
    """The tokens of the prompt that the decode side does not compute."""
    request = engine.add(prompt)
    request.source, request.source_tokens = handover.source, handover.tokens
    finish(engine, request)
    return request.cached


def test_a_decode_engine_takes_over_what_a_prefill_engine_computed(daemons, engines):
    prefill, decode = engines(daemons()), engines(daemons())
    for prompt in prompts(9, 6):
        handover = hand_over(prefill, prompt)
        assert handover.tokens == len(prompt) // SIZE * SIZE
        assert take_over(decode, prompt, handover) == (len(prompt) - 1) // SIZE * SIZE
    assert decode.failed_loads == 0 and decode.side.take_counts().remote_hit_tokens == sum(whole(prompts(9, 6)))
    assert set(decode.asked) == {handover.source}, "there is no need to ask the store"


def test_a_prefix_that_was_handed_over_stays_for_its_lease(daemons, engines):
    """Other prompts fill the prefill side's cache several times."""
    daemon = daemons()
    prefill, decode = engines(daemon, host="8KiB", handovers=Handovers(lease=LEASE)), engines(daemons())
    (prompt,) = prompts(10, 1, longest=40)
    handover = hand_over(prefill, prompt)
    commit(prefill)
    client = prefill.link.client
    (pin,) = client.list_pins().pins
    assert pin.pinned_tokens == handover.tokens == len(prompt) // SIZE * SIZE
    for other in prompts(11, 30, longest=40):
        prefill.run([other], steps=MANY)
    assert client.match(prompt).cached_tokens >= (len(prompt) - 1) // SIZE * SIZE
    assert take_over(decode, prompt, handover) == (len(prompt) - 1) // SIZE * SIZE
    client.unpin(pin.pin_id)


def test_a_lease_ends(daemons, engines):
    prefill = engines(daemons(), handovers=Handovers(lease=0.5))
    hand_over(prefill, prompts(12, 1)[0])
    commit(prefill)
    client = prefill.link.client
    assert len(client.list_pins().pins) == 1
    wait_for(lambda: not client.list_pins().pins)


class HeldSaves(LateMover):
    """A device whose saves end when the test says so."""

    def __init__(self):
        super().__init__(None)
        self.is_saving = False

    def run(self, most):
        while any(stream.run_one() for stream in (self.compute, self.loads, *([self.saves] if self.is_saving else []))):
            pass


def test_a_decode_engine_that_is_faster_than_the_commit_waits_for_it(daemons, engines):
    """The prefill engine answers before its last blocks are committed."""
    movers = []

    def mover():
        movers.append(HeldSaves())
        return movers[-1]

    prefill, decode = engines(daemons(), mover=mover), engines(daemons())
    (prompt,) = prompts(13, 1)
    handover = hand_over(prefill, prompt)
    assert handover.tokens == len(prompt) // SIZE * SIZE
    request = decode.add(prompt)
    request.source, request.source_tokens = handover.source, handover.tokens
    ends = time.monotonic() + 0.3
    while time.monotonic() < ends:
        decode.step()
    assert request.tables is None and decode.asked.count(handover.source) > 1
    movers[0].is_saving = True
    for _ in range(3):  # vLLM runs such empty steps while copies are under way.
        prefill.step()
    commit(prefill)
    finish(decode, request)
    assert request.cached == (len(prompt) - 1) // SIZE * SIZE


@pytest.mark.parametrize("source", ["127.0.0.1:1", "10.9.9.9:7075", "no address", ""])
def test_a_wrong_source_costs_the_hit_alone(source, redis, daemons, engines):
    """It is away, is not allowed, or is no address. The store is asked next."""
    first = engines(daemons(redis.address))
    decode = engines(daemons(redis.address, sources=["127.0.0.1:*"]))
    (prompt,) = prompts(14, 1)
    published(first, [prompt], redis)
    assert take_over(decode, prompt, Handover(source, 1000)) == (len(prompt) - 1) // SIZE * SIZE
    assert decode.asked == [source, None][not source:] and decode.side.take_counts().lost_sessions == 0
    longer = prompt + [1] * SIZE
    assert take_over(decode, longer + [1], Handover(source, 1000)) == len(prompt) // SIZE * SIZE
    assert decode.asked == [source, None, None][not source:], "a source that failed is left alone"


def test_a_source_that_is_not_allowed_is_asked_once(daemons, engines):
    decode = engines(daemons(), sources=Sources(pause=0.0))
    for prompt in prompts(18, 3):
        assert take_over(decode, prompt, Handover("10.9.9.9:7075", 1000)) == 0
    assert decode.asked == ["10.9.9.9:7075", None]


def test_a_daemon_that_ends_under_a_fetch_costs_the_hit_alone(redis, daemons, engines):
    daemon = daemons(redis.address)
    engine = engines(daemon)
    redis.pause()
    request = engine.add(prompts(19, 1)[0])
    engine.step()
    assert request.tables is None
    daemon.kill()
    finish(engine, request)
    assert request.cached == 0 and engine.side.take_counts().lost_sessions == 1
    redis.go_on()
    daemon.start()
    assert engine.link.wait(60)


def test_a_machine_without_an_address_hands_nothing_over(redis, daemons, engines):
    prefill = engines(daemons(redis.address, address=""))
    assert hand_over(prefill, prompts(15, 1)[0]) is None
    commit(prefill)
    assert not prefill.link.client.list_pins().pins


def test_only_what_is_asked_for_is_handed_over(daemons, engines):
    prefill = engines(daemons())
    one_by_one(prefill, prompts(16, 2))
    commit(prefill)
    assert not prefill.link.client.list_pins().pins
    without = engines(daemons(), handovers=None)
    assert hand_over(without, prompts(16, 1)[0]) is None


def test_a_request_that_ends_while_it_waits_ends_its_fetch(redis, daemons, engines):
    engine = engines(daemons(redis.address))
    redis.pause()
    request = engine.add(prompts(17, 1)[0])
    engine.step()
    held = engine.side._held[request.id]
    assert request.tables is None and held.fetch is not None
    call = held.fetch._call
    engine.end(request)
    assert call.done()
    with pytest.raises(pagoda.Unavailable, match="cancelled"):
        call.result()
    commit(engine)
    assert held.sequence.freed
    redis.go_on()


@pytest.mark.parametrize("seed", range(3))
def test_small_caches_over_a_store_never_give_wrong_bytes(seed, redis, daemons, engines):
    """Two machines whose caches have a tenth of what is asked for. Requests are preempted and ended
    at random, also while they wait."""
    rng = random.Random(seed)
    both = [engines(daemons(redis.address), host="32KiB", fetch_deadline=1.0, mover=HostMover) for _ in range(2)]
    roots = prompts(seed, 6)
    asked = [rng.choice(roots)[:rng.randrange(8, 90)] + [rng.randrange(9) for _ in range(rng.randrange(1, 30))] for _ in range(40)]
    ends = time.monotonic() + 4
    while time.monotonic() < ends:
        for engine in both:
            while len(engine.running) < 5:
                engine.add(rng.choice(asked))
            engine.step()
            for request in list(engine.running.values()):
                if request.loading:
                    continue
                if request.tables is None:
                    if rng.random() < 0.002:
                        engine.end(request)
                elif rng.random() < 0.05:
                    engine.preempt(request)
                elif request.computed == len(request.tokens):
                    if rng.random() < 0.5:
                        engine.end(request, hands_over=rng.random() < 0.1)
                    else:
                        request.tokens.append(hash(tuple(request.tokens[-8:])) % 1000)
    for engine in both:
        counts = engine.side.take_counts()
        assert counts.remote_hit_tokens > 100 and engine.failed_loads == 0 and counts.lost_sessions == 0
        for request in list(engine.running.values()):
            while request.loading:
                engine.step()
            engine.end(request)
