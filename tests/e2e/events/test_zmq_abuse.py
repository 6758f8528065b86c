"""The effect of hostile peers of the ZMQ sockets on the daemon. A subscriber that reads nothing
costs little. Requests of any kind at the replay socket delay neither the live events nor other
peers' replays."""

import os
import random
import threading
import time

import pytest
import zmq
from pagoda_client import Client
from test_zmq_bridge import bridged, follow, metric, published  # bridged is a fixture.
from vllm_events import PATIENCE_MS, Index, MapDecoder, Subscriber

MOST_BYTES = 2_000_000  # The most memory that one peer may cost.
STALLED = 8
# For the largest messages: prompts of 128 blocks of 32 tokens, and time to gather them.
LARGE = {"cache": {"tokens_per_block": 32, "primary": 512}, "events": {"max_events": 500, "flush_interval": "30ms"}}
BYTES_A_ROUND = 8 << 20


def resident(daemon):
    """Bytes of memory, when they have not grown or shrunk for half a second."""
    last, since = 0, time.monotonic()
    while time.monotonic() - since < 0.5:
        with open(f"/proc/{daemon.process.pid}/statm") as statm:
            now = int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        if abs(now - last) > 100_000:
            last, since = now, time.monotonic()
        time.sleep(0.02)
    return last


def publish(daemon, client, rng, least_bytes):
    """Makes the bridge publish so many bytes and more."""
    until = metric(daemon, "pagoda_zmq_bytes_total") + least_bytes
    while metric(daemon, "pagoda_zmq_bytes_total") < until:
        for _ in range(10):
            client.cache(rng.getrandbits(40), [rng.randrange(100_000, 150_000) for _ in range(4096)])
    published(daemon)


class Peer:
    """A socket that connects and accepts as little as it can before the test receives."""

    def __init__(self, kind, endpoint):
        self.context = zmq.Context()
        self.socket = self.context.socket(kind)
        self.socket.set(zmq.LINGER, 0)
        self.socket.set(zmq.RCVHWM, 1)
        if kind == zmq.SUB:
            self.socket.subscribe("kv@")
        self.socket.connect(endpoint)

    def close(self):
        self.context.destroy(linger=0)


@pytest.fixture
def peers():
    """peers(kind, endpoint) is a Peer; all are closed at the end."""
    everybody = []

    def make(*arguments):
        everybody.append(Peer(*arguments))
        return everybody[-1]

    yield make
    for peer in everybody:
        peer.close()


def received_bytes(socket):
    """The bytes of the payloads that arrive although nothing more is sent."""
    total = 0
    while socket.poll(500):
        total += len(socket.recv_multipart()[2])
    return total


def test_a_stalled_subscriber_costs_less_than_2_mb(bridged, peers):
    # Long flush intervals make large messages. With small messages a peer takes only half as many
    # bytes before it stalls.
    full = LARGE | {"events": LARGE["events"] | {"flush_interval": "200ms"}}
    daemon, subscriber = bridged(zmq={"buffer_bytes": 1 << 20}, **full)
    subscriber.close()
    rng, endpoint = random.Random(1), daemon.config["events"]["zmq"]["endpoint"]
    with Client(daemon.channel) as client:
        for _ in range(STALLED):
            publish(daemon, client, rng, BYTES_A_ROUND)
        without = resident(daemon)
        stalled = []
        # One peer after the other, so no two peers hold the same messages.
        for _ in range(STALLED):
            stalled.append(peers(zmq.SUB, endpoint).socket)
            while not stalled[-1].poll(20):
                publish(daemon, client, rng, 1)
            publish(daemon, client, rng, BYTES_A_ROUND)
        each = (resident(daemon) - without) / STALLED
    print(f"a stalled subscriber: {each:.0f} bytes of {BYTES_A_ROUND} and more that were published")
    assert each < MOST_BYTES
    held = [received_bytes(socket) for socket in stalled]
    assert min(held) > 1_000_000, f"each peer stalled with more than a megabyte under way: {held}"


def test_a_stalled_replay_costs_less_than_2_mb(bridged, peers):
    daemon, subscriber = bridged(**LARGE)
    subscriber.close()
    rng, endpoint = random.Random(1), daemon.config["events"]["zmq"]["replay_endpoint"]
    with Client(daemon.channel) as client:
        publish(daemon, client, rng, 2 * BYTES_A_ROUND)
        without = resident(daemon)
        for _ in range(STALLED):
            dealer = peers(zmq.DEALER, endpoint).socket
            dealer.send_multipart([b"", bytes(8)])
            assert dealer.poll(PATIENCE_MS)
        each = (resident(daemon) - without) / STALLED
    print(f"a stalled replay: {each:.0f} bytes of {2 * BYTES_A_ROUND} and more that it requested")
    assert each < MOST_BYTES
    assert received_bytes(dealer) > 2 * BYTES_A_ROUND, "a stalled peer gets everything when it reads"


def short(dealer):
    dealer.send_multipart([b"", b"short"], zmq.DONTWAIT)


def long(dealer):
    dealer.send_multipart([b"", bytes(9)], zmq.DONTWAIT)


def huge(dealer):
    dealer.send_multipart([b"", bytes(4 << 20)], zmq.DONTWAIT)
    time.sleep(0.02)  # The daemon needs longer to reconnect.


def many_frames(dealer):
    dealer.send_multipart([b""] * 200, zmq.DONTWAIT)


def everything(dealer):
    dealer.send_multipart([b"", bytes(8)], zmq.DONTWAIT)


HABITS = [short, long, huge, many_frames, everything]


class Abusers:
    """A thread for each habit. Each has its own connection, and does not read from it."""

    def __init__(self, peers, endpoint, habits):
        self.over = threading.Event()
        self.threads = [threading.Thread(target=self._abuse, args=(habit, peers(zmq.DEALER, endpoint).socket)) for habit in habits]
        self.sent = 0

    def _abuse(self, habit, dealer):
        while not self.over.is_set():
            try:
                habit(dealer)
                self.sent += 1
            except zmq.Again:
                time.sleep(0.001)

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *error):
        self.over.set()
        for thread in self.threads:
            thread.join()


@pytest.mark.parametrize("habits", [[habit] for habit in HABITS] + [HABITS], ids=lambda habits: "+".join(h.__name__ for h in habits))
def test_whatever_is_asked_for_the_events_and_other_replays_go_on(bridged, peers, habits):
    daemon, live = bridged()
    endpoint = daemon.config["events"]["zmq"]["replay_endpoint"]
    with Client(daemon.channel) as client:
        client.cache(1, range(240))
        follow(daemon, live, Index(MapDecoder()))
        while live.receive() is None:  # Until its subscription exists.
            client.cache(2, random.choices(range(1000), k=9))
    with Abusers(peers, endpoint, habits) as abusers:
        daemon.wait_until(lambda _: abusers.sent >= (20 if habits == [huge] else 300))
        before = resident(daemon)
        with Client(daemon.channel) as client:
            slowest = max(seconds_to(client, live, number) for number in range(40))
        assert slowest < 2, f"a batch took {slowest} s"
        end = published(daemon)
        other = Subscriber(daemon.config["events"]["zmq"]["endpoint"], endpoint)
        answers = other.replay(0)
        other.close()
        assert [seq for seq, _ in answers[:end]] == list(range(end)), "the replay is whole"
        if habits == [huge]:
            assert resident(daemon) - before < 4 << 20, "the daemon accepted a huge frame"
        else:
            assert metric(daemon, "pagoda_zmq_refused_replays_total") > 0
        assert daemon.terminate() == 0, "the daemon ends while the abuse goes on"


def seconds_to(client, live, number):
    """From when the cache has something new until its batch comes."""
    client.cache(10 + number, [1000 * number + i for i in range(1000, 1240)])
    began = time.monotonic()
    assert live.sub.poll(PATIENCE_MS), f"batch {number} has not arrived"
    live.receive()
    return time.monotonic() - began
