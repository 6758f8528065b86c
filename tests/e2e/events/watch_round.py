"""A round of test_battery_watch.py: clients that change the cache, subscribers of all kinds, and at
the end a comparison of all trees with the manager's."""

import contextlib
import dataclasses
import json
import os
import pathlib
import random
import subprocess
import sys
import threading
import time

import watch_traffic
from pagoda.v1 import admin_pb2
from tcp_proxy import SlowProxy, TcpProxy
from watch_history import ALL_TIERS, ALL_TYPES, DEFAULT_TENANT, History, Owners, Recording
from watch_subscribers import Reference, Stage, Subscriber
from watch_trees import PackageWatch, compare_trees, first_difference
from watch_zmq import ZmqWatch, blocks_of_routers

LEAST_RATE = 1000  # Operations a second. A round with fewer proves nothing.
OFFERED_RATE = 2400
WINDOW = 64
OPERATOR, RED, BLUE = (f"token-of-{name}-0123456789" for name in ("the-operator", "red", "blue"))
LAYERS = {"num_kv_heads": 1, "head_dim": 4}
# The log is so short that it passes every subscriber that stalls. But some subscribers must see
# every event. The clients wait for them, so the log must hold watch_traffic.MOST_UNSEEN events and
# a batch of each client. An operation is one event in one window, and two or three in two windows.
EVENTS = {"progress_interval": "40ms", "flush_interval": "10ms"}
# ONE has full attention, and configures no tenants. TWO has two windows and two tenants, and one of
# these shares its cached blocks.
ONE = {"cache": {"tokens_per_block": 16, "primary": 256, "secondary": 128, "layers": {"count": 1, **LAYERS}},
       "events": {"max_events": 600, **EVENTS}}
TWO = {"cache": {"tokens_per_block": 16, "primary": [128, 256], "secondary": [64, 128],
                 "layers": [{"count": 1, "window": WINDOW, **LAYERS}, {"count": 1, "window": 0, **LAYERS}]},
       "events": {"max_events": 1200, **EVENTS}, "operator_token": OPERATOR, "secrets": {"red.tokens": RED, "blue.tokens": BLUE},
       "tenants": [{"name": "red", "tokens_file": "red.tokens"}, {"name": "blue", "tokens_file": "blue.tokens", "shares": True}]}


@dataclasses.dataclass
class Round:
    """The result of a round."""

    recording: Recording
    void: str  # Why the round proves nothing, or empty.
    figures: dict
    dump: History  # The manager's own tree: a snapshot taken without traffic.
    package: dict | BaseException  # PackageWatch's blocks at that time, or the error that ended it.
    routers: tuple  # ZmqWatch's blocks at that time, and the expected ones.

    def compare_trees(self):
        """Does what compare_trees does, and compares what a router of vLLM's wire has."""
        compared = compare_trees(self.recording, self.dump, self.package)
        found, expected = self.routers
        assert found == expected, f"a router of vLLM's wire has other blocks: {first_difference(found, expected)}"
        return compared + 1


class Ground:
    """A daemon with its clients, for round after round."""

    def __init__(self, daemon, folder, tokens):
        self.daemon = daemon
        self.has_tenants = tokens != [None]
        self._control = watch_traffic.Control(folder / "control")
        self._lock = threading.Lock()
        self._goes_on = False
        self._seen = {"package": 0}  # By subscriber that must see every event: the last revision seen.
        self._clients = []
        self._package = None
        for token in tokens * (2 // len(tokens)):
            command = [sys.executable, "-B", watch_traffic.__file__, f"unix:{daemon.unix_socket}", token or "-", folder / "control"]
            self._clients.append(subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *command], stdin=subprocess.PIPE,
                                                  stdout=subprocess.PIPE, text=True))
        self._operator = OPERATOR if self.has_tenants else None
        self._package = PackageWatch(f"unix:{daemon.unix_socket}", self._operator, lambda revision: self._tell("package", revision))
        self._package.start()
        self._routers = ZmqWatch(daemon)
        self._routers.start()
        for client in self._clients:
            _answer(client)  # The client has started.

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._package.close()
        self._routers.close()
        for client in self._clients:
            client.kill()
            client.wait()
            client.stdout.close()

    def close(self):
        """Ends the clients' sessions in good order."""
        for client in self._clients:
            client.stdin.close()
            assert client.wait(20) == 0

    def _tell(self, who, revision):
        """Notes how far a subscriber is that must see every event. The clients wait for the slowest
        of these."""
        with self._lock:
            self._seen[who] = revision
            self._control.write(self._goes_on, min(self._seen.values()))

    def _let_go_on(self, goes_on):
        with self._lock:
            self._goes_on = goes_on
            self._control.write(goes_on, min(self._seen.values()))

    def _subscriber(self, name, stage, seed, *, address=None, token=None, caller=None, **options):
        return Subscriber(name, stage, address or f"unix:{self.daemon.unix_socket}", seed=seed, token=token or self._operator, caller=caller,
                          **options)

    def _subscribers(self, stage, rng, proxies):
        """One of each kind."""
        def near(name, **options):
            return self._subscriber(name, stage, rng.random(), **options)

        def far(name, proxy, **options):
            return near(name, address=proxies[proxy].address, proxy=proxies[proxy], **options)

        some_types = rng.sample(sorted(ALL_TYPES), rng.randrange(1, len(ALL_TYPES)))
        one_tier = rng.choice(sorted(ALL_TIERS))
        everybody = [far("cut", "cut", habit="cuts", snapshot=True),
                     far("cut, a tier", "cut a tier", habit="cuts", snapshot=True, tiers=[one_tier]),
                     far("over a bad line", "slow", habit=rng.choice(["steady", "cuts"]), snapshot=True),
                     # Naming all types, or both tiers, shows everything but is a separate filter.
                     # For subscribers that share a filter, the daemon keeps some MiB of messages,
                     # longer than its log goes back.
                     near("passed", habit="stalls", snapshot=True, types=sorted(ALL_TYPES)),
                     near("passed, and given a snapshot", habit="stalls", snapshot=True, resnapshot_when_behind=True, tiers=sorted(ALL_TIERS)),
                     near("late", habit="leaves", snapshot=True),
                     near("from now, some types", habit="cancels", types=some_types)]
        if not self.has_tenants:
            return everybody
        shared = rng.choice([dict(token=RED, caller=frozenset({"red"})), dict(token=BLUE, caller=frozenset({"blue", DEFAULT_TENANT}))])
        return everybody + [near("a window", habit="cancels", snapshot=True, window_sizes=[rng.choice([0, WINDOW])]),
                            near("a tenant", habit="cancels", snapshot=True, **shared),
                            near("about a tenant", habit="stalls", resnapshot_when_behind=True, tenant=rng.choice(["red", "blue"]))]

    def round(self, seed, seconds):
        """One round with so many seconds of traffic."""
        rng = random.Random(seed)
        stage = Stage(self.daemon.config["events"]["max_events"])
        self.daemon.settle()
        reference = Reference(stage, f"unix:{self.daemon.unix_socket}", lambda revision: self._tell("reference", revision),
                              token=self._operator)
        with contextlib.ExitStack() as running:
            proxies = {name: running.enter_context(make()) for name, make in {
                "cut": lambda: TcpProxy(self.daemon.grpc_address), "cut a tier": lambda: TcpProxy(self.daemon.grpc_address),
                "slow": lambda: SlowProxy(self.daemon.grpc_address, seed)}.items()}
            subscribers = self._subscribers(stage, rng, proxies)
            everybody = [reference, *subscribers]
            try:
                told = self._let_loose(stage, reference, subscribers, rng, seconds)
                dump, package, routers = self._dump()
                stage.target = dump.position
            finally:
                stage.calm.set()
                self._let_go_on(False)
            for subscriber in everybody:
                subscriber.join(60)
        for subscriber in everybody:
            assert not subscriber.is_alive(), f"{subscriber.name} did not reach revision {stage.target}"
            if subscriber.error is not None:
                raise subscriber.error
        everybody.append(dump)
        recording = self._record(everybody, told, stage)
        return Round(recording, self._why_void(told), self._figures(everybody, told), dump.history, package, routers)

    def _let_loose(self, stage, reference, subscribers, rng, seconds):
        """What the clients did."""
        reference.start()
        self.daemon.wait_until(lambda _: reference.position is not None or reference.error)
        self._let_go_on(True)
        began = time.monotonic()
        for client in self._clients:
            print(json.dumps({"seed": rng.random(), "rate": OFFERED_RATE / len(self._clients)}), file=client.stdin, flush=True)
        for subscriber in subscribers:
            subscriber.start()
        resets = sorted(rng.uniform(0, 0.8 * seconds) for _ in range(2))  # The time after the resets lets the cache fill.
        for moment in [*resets, seconds]:
            time.sleep(max(0, began + moment - time.monotonic()))
            if moment != seconds:
                self.daemon.admin.ResetPrefixCache(admin_pb2.ResetPrefixCacheRequest(), timeout=20)
        self._let_go_on(False)
        told = [_answer(client) for client in self._clients]
        self.daemon.settle()
        return told

    def _dump(self):
        """With no traffic: a snapshot, the package's blocks at the same revision, or its error, and
        the blocks of vLLM's wire, beside the expected ones."""
        while True:
            stage = Stage(self.daemon.config["events"]["max_events"])
            stage.target = self.daemon.status().revision
            stage.calm.set()
            dump = self._subscriber("dump", stage, 0, snapshot=True)
            dump.start()
            dump.join(60)
            assert dump.error is None and not dump.is_alive(), dump.error
            self.daemon.wait_until(lambda _: self._package.error or self._package.revision >= dump.position)
            if self._package.error:
                return dump, self._package.error, ({}, {})
            routers = self._routers.blocks()
            if (blocks := self._package.blocks_at(dump.position)) is not None and self.daemon.status().revision == dump.position:
                return dump, blocks, (routers, blocks_of_routers(blocks, self.daemon.config["cache"]))

    def _record(self, subscribers, told, stage):
        owners = Owners()
        for client in told:
            for window, block_id, revision in client["taken"]:
                owners.claim(window, block_id, revision, client["tenant"])
            owners.pins.update(dict.fromkeys(client["pinned"], client["tenant"]))
        known, acknowledged = 0, []
        for moment, revision in sorted(tuple(answer) for client in told for answer in client["answers"]):
            known = max(known, revision)
            acknowledged.append((moment, known))
        reference, *others = (subscriber.history for subscriber in subscribers)
        return Recording(reference, others, owners, acknowledged, target=stage.target, final=self.daemon.status().revision)

    @staticmethod
    def _why_void(told):
        rate = _rate(told)
        return f"{rate:.0f} operations a second" if rate < LEAST_RATE else ""

    @staticmethod
    def _figures(subscribers, told):
        streams = [stream for subscriber in subscribers for stream in subscriber.history.streams]
        messages = [message for stream in streams for message in stream.messages]
        return {"operations": sum(client["ran"] for client in told),
                "rate": _rate(told),
                "streams": len(streams), "messages": len(messages),
                "events": sum(len(message.body.events) for message in messages),
                "marks": sum(not message.body.events for message in messages),
                "cut": sum(stream.end is not None and stream.end.reason == "cut" for stream in streams),
                "resumed": sum(stream.request.HasField("from_revision") and bool(stream.messages) for stream in streams),
                "passed": sum(stream.end is not None and stream.end.reason == "REVISION_COMPACTED" for stream in streams),
                "snapshots": sum(message.body.snapshot_end for message in messages),
                "snapshots_again": sum(message.body.snapshot_begin for stream in streams for message in stream.messages[1:])}


def _rate(told):
    """Operations that did not fail, a second, of all clients together."""
    return sum(client["ran"] for client in told) / max(client["seconds"] for client in told)


def _answer(client):
    line = client.stdout.readline()
    assert line, "a client has ended before its time"
    return json.loads(line)


@contextlib.contextmanager
def open_ground(start_daemon, folder, sections, tokens):
    """`tokens`: of the clients' tenants, [None] without."""
    # A socket's path must be short.
    zmq = {key: f"ipc:///tmp/pagoda-{os.getpid()}-{folder.name}-{key}" for key in ("endpoint", "replay_endpoint")}
    daemon = start_daemon(**sections | {"events": sections["events"] | {"zmq": zmq}, "server": {"http_address": "127.0.0.1:0"}})
    pathlib.Path(folder).mkdir(exist_ok=True)
    with Ground(daemon, pathlib.Path(folder), tokens) as ground:
        yield ground
