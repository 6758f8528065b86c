"""pagodactl top's account of the event stream, compared with the events, the daemon's snapshot and
its answers."""

import collections
import json
import random
import signal
import subprocess
import threading
import time

import pytest
from pagoda_client import Client
from pagodactl import command, run_ok
from pagoda.v1 import admin_pb2, events_pb2, events_pb2_grpc, types_pb2
from shadow_tree import ShadowTree

DEADLINE_SECONDS = 60
OPERATOR = "token-of-the-operator-0123456789"
RECENT = 16  # A line ends with so many events.
TIERS = {"primary": types_pb2.TIER_PRIMARY, "secondary": types_pb2.TIER_SECOND}
NAMES = {tier: name for name, tier in TIERS.items()}


class Top:
    """pagodactl top -o json; each object that it writes."""

    def __init__(self, daemon, options=("top", "--interval", "0.1")):
        self.process = subprocess.Popen(command(daemon, *options, "-o", "json"), stdout=subprocess.PIPE, text=True)
        self.lines = []

    def next(self):
        line = self.process.stdout.readline()
        assert line, f"it ended with {self.process.wait(DEADLINE_SECONDS)}"
        self.lines.append(json.loads(line))
        return self.lines[-1]

    def read_until(self, condition):
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not condition(self.next()):
            assert time.monotonic() < deadline, self.lines[-1]
        return self.lines[-1]

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.process.send_signal(signal.SIGCONT)
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.communicate(timeout=DEADLINE_SECONDS)
        finally:
            self.process.kill()
        if error[0] is None:
            assert self.process.returncode == 0


def is_live(line):
    return line.get("stream", {}).get("state") == "live"


def is_at(revision):
    return lambda line: is_live(line) and line["stream"]["revision"] == revision


def reusable(line):
    """Blocks by tier of the one window; a tier that is not named has none."""
    (window,) = line["stream"]["windows"]
    assert set(window["reusable_blocks"]) <= set(TIERS)
    return {tier: window["reusable_blocks"].get(tier, 0) for tier in TIERS}


def cached(daemon):
    """The same from the daemon's status. Correct only while no client holds blocks."""
    return {tier: next((known.cached_blocks - known.duplicate_blocks for known in daemon.status().windows[0].tiers if known.tier == number), 0)
            for tier, number in TIERS.items()}


def by_tier(tree):
    return {tier: sum(node.tier == number for node in tree.nodes.values()) for tier, number in TIERS.items()}


def all_events(daemon):
    """What the log has, from its beginning to now."""
    revision = daemon.status().revision
    stub = events_pb2_grpc.EventServiceStub(daemon.connect())
    stream = stub.Watch(events_pb2.WatchRequest(from_revision=1), timeout=DEADLINE_SECONDS)
    events = []
    for message in stream:
        events += message.events
        if message.revision >= revision:
            stream.cancel()
            return events


class Count:
    """Events and blocks, counted one by one."""

    def __init__(self):
        self.events = dict.fromkeys(("created", "stored", "updated", "removed"), 0)
        self.blocks = collections.Counter()
        self.removed = collections.Counter()

    def add(self, event, cleared):
        kind = event.WhichOneof("event")
        self.events[kind] += 1
        if kind == "created":
            self.blocks["handed_out"] += len(event.created.block_ids)
        elif kind == "stored":
            self.blocks["stored"] += len(event.stored.blocks)
        elif kind == "updated":
            move = event.updated.tier
            self.blocks["offloaded"] += event.updated.HasField("tier") and move.new_value > move.old_value
            self.blocks["onboarded"] += event.updated.HasField("tier") and move.new_value < move.old_value
            self.blocks["reprioritized"] += event.updated.HasField("priority")
        else:
            whole_window = event.removed.scope == events_pb2.REMOVAL_SCOPE_WINDOW
            reason = events_pb2.RemovalReason.Name(event.removed.reason).removeprefix("REMOVAL_REASON_").lower().replace("_", " ")
            self.removed[reason] += cleared if whole_window else len(event.removed.block_ids)


def check_against(events, lines):
    """Replays the events, and compares at each line's revision. The lines of one snapshot are in
    order."""
    tree, count, replayed = ShadowTree(), Count(), 0
    for line in lines:
        told = line["stream"]
        first, last = told["snapshot_revision"], told["revision"]
        for event in events[replayed:last]:
            before = len(tree.nodes)
            tree.apply(event)
            if event.revision > first:
                count.add(event, cleared=before)
        replayed = last
        assert reusable(line) == by_tier(tree), told
        assert told["events_total"] == count.events
        (window,) = told["windows"]
        for name in ("stored", "offloaded", "onboarded", "reprioritized", "handed_out"):
            assert window[f"{name}_blocks_total"] == count.blocks[name], name
        assert {reason: blocks for reason, blocks in window["removed_blocks_total"].items() if blocks} == dict(+count.removed)
        recent = [(event.revision, event.WhichOneof("event")) for event in events[first:last][-RECENT:]]
        assert [(event["revision"], event["type"]) for event in told["recent"]] == recent


def load(daemon, client, seed, stop):
    """Prompts, half of which come again, raw blocks, priorities, invalidated prefixes, and
    resets."""
    rng = random.Random(seed)
    prompts = [[1, 2, 3, 4, 5]]
    number = 0
    while not stop.is_set():
        number += 1
        if rng.random() < 0.5:
            prompts = [*prompts[-20:], [rng.randrange(50_000) for _ in range(rng.randrange(4, 60))]]
        client.cache(number, rng.choice(prompts))
        if number % 5 == 0:  # Too low a priority for the secondary tier: the blocks are evicted from the primary tier.
            client.retain(prompts[-1], types_pb2.RetentionRange(priority=1))
        if number % 7 == 0:
            client.free(client.allocate(2))
        if number % 31 == 0:
            client.invalidate(rng.choice(prompts))
        if number % 97 == 0:
            daemon.admin.ResetPrefixCache(admin_pb2.ResetPrefixCacheRequest(), timeout=20)


@pytest.fixture
def busy_daemon(start_daemon):
    # The log keeps all events of a test.
    return start_daemon(cache={"primary": 96, "secondary": 48}, events={"max_events": 1 << 22})


def test_under_load_its_counts_are_those_of_the_events(busy_daemon):
    daemon = busy_daemon
    stop = threading.Event()
    with Client(daemon.connect(), "load") as client, Top(daemon) as top:
        worker = threading.Thread(target=load, args=(daemon, client, 3, stop))
        worker.start()
        try:
            top.read_until(is_live)
            enough = {"evicted", "displaced", "invalidated", "cleared", "released"}
            top.read_until(lambda line: len(top.lines) > 15 and enough <= set(line["stream"]["windows"][0]["removed_blocks_total"])
                           or not worker.is_alive())
        finally:
            stop.set()
            worker.join()
        last = top.read_until(is_at(daemon.status().revision))
        events = all_events(daemon)
        assert [event.revision for event in events] == list(range(1, len(events) + 1))
        live = [line for line in top.lines if is_live(line)]
        assert len({line["stream"]["revision"] for line in live}) > 10, "top printed too few lines under the load"
        check_against(events, live)
        for line in live:
            assert line["stream"]["epoch"] == line["status"]["epoch"] == str(daemon.status().epoch)
            assert line["stream"]["behind_events"] == max(0, int(line["status"]["revision"]) - line["stream"]["revision"])
        assert max(line["events_per_second"] or 0 for line in live) > 0
        (window,) = last["stream"]["windows"]
        assert enough <= set(window["removed_blocks_total"]), "the load stopped too early"
        assert all(window[f"{name}_blocks_total"] for name in ("stored", "offloaded", "onboarded", "reprioritized", "handed_out"))
        # The daemon's status and its snapshot have the same counts.
        assert reusable(last) == cached(daemon)
        with subprocess.Popen(command(daemon, "watch", "--snapshot", "-o", "json"), stdout=subprocess.PIPE, text=True) as dump:
            tiers = collections.Counter()
            for line in map(json.loads, dump.stdout):
                tiers.update(NAMES[types_pb2.Tier.Value(block["tier"])] for block in line.get("stored", {}).get("blocks", ()))
                if line.get("snapshot_end"):
                    break
            dump.terminate()
            dump.communicate(timeout=DEADLINE_SECONDS)
        assert reusable(last) == {tier: tiers[tier] for tier in TIERS}


def test_rates_are_those_of_what_happened(busy_daemon):
    daemon = busy_daemon
    with Client(daemon.connect()) as client, Top(daemon) as top:
        first = top.read_until(lambda line: is_live(line) and line["events_per_second"] == 0)
        for number in range(1, 31):
            client.cache(number, [number] * 5)  # Two blocks. One of them is a tail.
        last = top.read_until(is_at(daemon.status().revision))
        happened = last["stream"]["revision"] - first["stream"]["revision"]
        assert happened >= 30
        # Each rate is that of one interval. Together they give the number of all events.
        lines = top.lines[top.lines.index(first):]
        seconds = [line["stream"]["state_seconds"] for line in lines]
        told = sum(line["events_per_second"] * (after - before) for line, before, after in zip(lines[1:], seconds, seconds[1:]))
        assert told == pytest.approx(happened, rel=1e-6)


def test_over_a_restart_it_begins_anew_and_says_so(busy_daemon):
    daemon = busy_daemon
    with Top(daemon) as top:
        Client(daemon.connect()).cache(1, list(range(20)))  # Its session ends with the daemon.
        line = top.read_until(is_at(daemon.status().revision))
        assert reusable(line)["primary"] == 5 and line["stream"]["snapshots"] == 1 and line["stream"]["interruption"] is None
        daemon.kill()
        assert top.read_until(lambda line: "error" in line)["error"]
        daemon.start()
        line = top.read_until(lambda line: is_live(line) and line["stream"]["epoch"] == line["status"]["epoch"])
        assert line["status"]["epoch"] == str(daemon.status().epoch)
        assert line["stream"]["snapshots"] == 2 and line["stream"]["interruption"]
        assert reusable(line) == {"primary": 0, "secondary": 0}
        with Client(daemon.connect()) as again:
            again.cache(1, list(range(8)))
            assert reusable(top.read_until(is_at(daemon.status().revision)))["primary"] == 2


def test_a_reader_that_fell_behind_takes_a_new_snapshot(start_daemon):
    daemon = start_daemon(cache={"primary": 4096}, events={"max_events": 100})
    rng = random.Random(5)
    with Client(daemon.connect()) as client, Top(daemon) as top:
        top.read_until(is_live)
        top.process.send_signal(signal.SIGSTOP)
        # The transport holds far less than these 30 MB for a reader.
        for number in range(150):
            client.cache(number + 1, [rng.randrange(50_000) for _ in range(16_000)])
        top.process.send_signal(signal.SIGCONT)
        line = top.read_until(is_at(daemon.status().revision))
        assert line["stream"]["snapshots"] >= 2 and "behind" in line["stream"]["interruption"]
        assert reusable(line) == cached(daemon)
        assert line["stream"]["snapshot_revision"] > 100


def test_the_rest_is_told_where_there_is_no_stream(start_daemon):
    # Half of the 8 streams go to the first callers. The operators and the tenant have a quarter
    # each. Here the operators take all that they can get.
    daemon = start_daemon(operator_token=OPERATOR, secrets={"red.tokens": "token-of-red-0123456789abcdef"},
                          tenants=[{"name": "red", "tokens_file": "red.tokens"}], server={"max_calls": 8})
    options = ("--auth-token-file", daemon.folder / "operators.tokens", "top", "--interval", "0.1")
    others = [events_pb2_grpc.EventServiceStub(daemon.channel).Watch(events_pb2.WatchRequest(), timeout=DEADLINE_SECONDS) for _ in range(6)]
    for other in others:
        next(other)
    report = run_ok(daemon, *options, "--once")
    assert "stream      none for" in report and "0 active, 0 cached" in report and "reusable" not in report
    with Top(daemon, options) as top:
        line = top.next()
        assert line["stream"]["state"] == "down" and line["stream"]["interruption"]
        assert line["events_per_second"] is None and line["status"]["windows"][0]["tiers"][0]["free_blocks"] == 64
        for other in others:
            other.cancel()
        assert reusable(top.read_until(is_live)) == {"primary": 0, "secondary": 0}
