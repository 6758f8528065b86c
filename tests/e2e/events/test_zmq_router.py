"""The router of server/bridges/README.md has the blocks of Watch after kills and restarts, pauses,
and gaps of every size."""

import contextlib
import os
import pathlib
import random
import re
import signal

import msgpack
import pytest
import zmq
from pagoda_client import Client
from test_events import TOKENS_PER_BLOCK, prompt, work
from test_snapshots import Joiner
from vllm_events import CPU, GPU
from warm_daemon import WarmDaemon

README = pathlib.Path(__file__).parents[3] / "server" / "bridges" / "README.md"
ROUNDS = 100 if os.environ.get("PAGODA_LONG") == "1" else 10
WORLDS = {
    "warm": {"primary": 32, "secondary": 16},
    "disk": {"warm_restart": False, "tiers": [
        {"name": "near", "medium": "host", "size": 32},
        {"name": "nvme", "medium": "disk", "size": 64, "min_priority": 0, "path": "disk"}]},
}


def router_of_the_readme():
    (program,) = (block for block in re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL) if "class Router" in block)
    scope = {"__name__": "readme"}
    exec(compile(program, str(README), "exec"), scope)
    return scope["Router"]


@pytest.fixture
def start(tmp_path):
    with contextlib.ExitStack() as stack:
        def start_one(world, **bridge):
            cache = dict(WORLDS[world])
            if "tiers" in cache:
                (tmp_path / "disk").mkdir()
                cache["tiers"] = [tier | ({"path": str(tmp_path / "disk")} if "path" in tier else {}) for tier in cache["tiers"]]
            daemon = WarmDaemon(tmp_path, **cache)
            daemon.config["server"]["http_address"] = "127.0.0.1:0"
            daemon.config["events"]["zmq"] = {key: f"ipc://{tmp_path}/{key}" for key in ("endpoint", "replay_endpoint")} | bridge
            stack.callback(lambda: [path.unlink() for path in daemon.files()])
            return stack.enter_context(daemon)

        yield start_one


def truth(daemon):
    """{medium: {hash}} of the whole blocks, from a snapshot of Watch."""
    watch = Joiner(daemon, snapshot=True)
    watch.read_snapshot()
    found = {}
    for node in watch.tree.nodes.values():
        if len(node.tokens) == TOKENS_PER_BLOCK:
            for tier in (node.tier, *node.lower):
                found.setdefault(GPU if tier == 1 else CPU, set()).add(node.hash)
    watch.stream.cancel()
    return found


def busy(daemon, rng, operations):
    with Client(daemon.channel) as client:
        work(client, rng, operations)
        client.invalidate(prompt(rng)[:4])


def restart(daemon):
    Client.opened_here.clear()  # Their sessions have ended with the daemon.
    for channel in daemon.channels:
        channel.close()
    daemon.channels.clear()
    daemon.kill()
    daemon.start()


def kill(daemon, rng, router):
    busy(daemon, rng, 30)
    restart(daemon)


def pause(daemon, rng, router):
    daemon.process.send_signal(signal.SIGSTOP)
    for _ in range(3):
        router.poll(50)
    daemon.process.send_signal(signal.SIGCONT)
    busy(daemon, rng, 30)


def gap(daemon, rng, router):
    """The router reads nothing meanwhile; its queue and the replay buffer overflow."""
    for _ in range(rng.randrange(1, 4)):
        busy(daemon, rng, 200)


def restart_unseen(daemon, rng, router):
    """The router does not read during the restart, and the new run has more messages than fit."""
    kill(daemon, rng, router)
    gap(daemon, rng, router)


@pytest.mark.parametrize("world", WORLDS)
def test_the_router_of_the_readme_ends_equal_to_watch(start, world):
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    daemon = start(world, hwm=8, buffer_steps=200)
    router = router_of_the_readme()(*(daemon.config["events"]["zmq"][key] for key in ("endpoint", "replay_endpoint")))
    compared = 0
    for number in range(ROUNDS):
        event = rng.choice([kill, pause, gap, restart_unseen])
        event(daemon, rng, router)
        daemon.settle()
        expected = {}

        def is_equal(daemon):
            """The daemon can go on to write blocks to its disk meanwhile."""
            expected.clear()
            expected.update(truth(daemon))
            while router.poll(100):
                pass
            return router.exact and {medium: hashes for (_, medium), hashes in router.blocks.items() if hashes} == expected

        try:
            daemon.wait_until(is_equal, seconds=20)
        except AssertionError:
            raise AssertionError(f"seed {seed}, round {number}, after {event.__name__}: {router.blocks} instead of {expected}") from None
        compared += sum(map(len, expected.values()))
    assert compared > 10 * ROUNDS, "hardly anything was cached"
    router.context.destroy(linger=0)


@pytest.mark.parametrize("world", WORLDS)
def test_a_run_begins_with_a_clear_above_all_earlier_numbers(start, world):
    daemon = start(world)
    dealer = zmq.Context().socket(zmq.DEALER)
    dealer.connect(daemon.config["events"]["zmq"]["replay_endpoint"])

    def first():
        """(number, events) of the run's first message."""
        while True:
            dealer.send_multipart([b"", bytes(8)])
            answers = []
            while not answers or answers[-1][1] != b"\xff" * 8:
                assert dealer.poll(20_000)
                answers.append(dealer.recv_multipart())
            if len(answers) > 1:
                _, seq, payload = answers[0]
                return int.from_bytes(seq, "big"), msgpack.unpackb(payload)[1], int.from_bytes(answers[-2][1], "big")

    busy(daemon, random.Random(1), 100)
    number, events, last = first()
    assert events == [{"type": "AllBlocksCleared"}]
    restart(daemon)
    number, events, _ = first()
    assert events == [{"type": "AllBlocksCleared"}] and number > last
    dealer.context.destroy(linger=0)
