"""pagodactl watch beside a real daemon: a snapshot, what follows, and what is asked to be shown."""

import json
import subprocess

from google.protobuf import json_format
from pagoda_client import Client
from pagoda.v1 import events_pb2, types_pb2
from pagodactl import RUN_SECONDS, command, run, run_ok


def cached(events):
    """The block ids that the events leave cached."""
    ids = set()
    for event in events:
        ids |= {block.block_id for block in event.stored.blocks}
        ids -= set(event.removed.block_ids)
    return ids


def test_a_snapshot_comes_first_and_then_what_happens(daemon):
    with Client(daemon.channel) as client:
        client.cache(1, list(range(8)))
        client.cache(2, [7] * 9)
        revision = daemon.status().revision
        watching = subprocess.Popen(command(daemon, "watch", "--snapshot", "-o", "json"), stdout=subprocess.PIPE, text=True)
        try:
            lines = []
            while not lines or not lines[-1].get("snapshot_end"):
                lines.append(json.loads(watching.stdout.readline()))
            begin, end = (json_format.ParseDict(line, events_pb2.WatchResponse()) for line in (lines[0], lines[-1]))
            assert begin.snapshot_begin and not begin.snapshot_end and not begin.events
            assert (begin.cache, begin.epoch) == (daemon.config["cache"]["name"], daemon.status().epoch)
            assert end.snapshot_end and not end.snapshot_begin and not end.events and end.revision == revision
            events = [json_format.ParseDict(line, events_pb2.Event()) for line in lines[1:-1]]
            assert {event.revision for event in events} == {0}
            assert len(cached(events)) == daemon.primary().cached_blocks == 5
            client.cache(3, [9] * 4)
            after = json_format.Parse(watching.stdout.readline(), events_pb2.Event())
            assert after.HasField("stored") and after.revision == revision + 1
        finally:
            watching.terminate()
            watching.communicate(timeout=RUN_SECONDS)


def test_tiers_have_the_names_of_the_configuration(start_daemon):
    daemon = start_daemon(cache={"tiers": [{"name": "hbm", "medium": "host", "size": 8}, {"name": "dram", "size": 16}]})
    with Client(daemon.channel) as client:
        client.cache(1, list(range(8)))
        assert run_ok(daemon, "watch", "--from-revision", "1", "--count", "1").endswith("pools: hbm 8, dram 16\n")
        for name in "hbm", "primary":
            stored = run_ok(daemon, "watch", "--from-revision", "1", "--type", "stored", "--tier", name, "--count", "1", "-o", "json")
            assert {block["tier"] for block in json.loads(stored)["stored"]["blocks"]} == {"TIER_PRIMARY"}
        refused = run(daemon, "watch", "--tier", "nvme")
        assert refused.returncode == 1 and "the cache has no tier 'nvme'; its tiers: hbm, dram" in refused.stderr


def test_hashes_by_chunks(daemon):
    with Client(daemon.channel) as client:
        client.cache(1, list(range(18)))
        options = "watch", "--from-revision", "1", "--count", "2", "--hashes", "--chunk-tokens", "8"
        created, stored = (json_format.Parse(line, events_pb2.Event()) for line in run_ok(daemon, *options, "-o", "json").splitlines())
        assert list(created.created.capacity) == [events_pb2.TierCapacity(tier=types_pb2.TIER_PRIMARY, blocks=daemon.primary().capacity_blocks)]
        assert [[field.name for field, _ in block.ListFields()] for block in stored.stored.blocks] == [["block_hash", "tier"]] * 2
        line = run_ok(daemon, *options).splitlines()[-1]
        assert line.endswith(f"hashes {','.join(f'{block.block_hash:016x}' for block in stored.stored.blocks)} in primary")


def test_people_read_a_snapshot_between_two_lines(daemon):
    with Client(daemon.channel) as client:
        client.cache(1, list(range(8)))
        revision = daemon.status().revision
        header, begin, *told = run_ok(daemon, "watch", "--snapshot", "--count", "2").splitlines()
        assert begin.split() == "- - begin all - - a snapshot; it replaces all earlier lines".split()
        assert [line.split()[0] for line in told] == ["-", "-"] and header.split()[0] == "REVISION"
        watching = subprocess.Popen(command(daemon, "watch", "--snapshot"), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            while (line := watching.stdout.readline().split())[2] != "end":
                assert line
            assert line == [str(revision), *"- end all - - the snapshot is complete".split()]
        finally:
            watching.terminate()
            watching.communicate(timeout=RUN_SECONDS)


def test_only_what_was_asked_for_is_shown(start_daemon):
    daemon = start_daemon(cache={"primary": 64, "secondary": 64})
    with Client(daemon.connect()) as client:
        for number in range(30):
            client.cache(number + 1, [number] * 16)
        everything = [json_format.Parse(line, events_pb2.Event()) for line in
                      run_ok(daemon, "watch", "--from-revision", 1, "--count", daemon.status().revision, "-o", "json").splitlines()]
        moved = [event for event in everything if event.HasField("updated") and event.updated.HasField("tier") and
                 types_pb2.TIER_SECOND in (event.updated.tier.old_value, event.updated.tier.new_value)]
        assert moved
        shown = run_ok(daemon, "watch", "--from-revision", 1, "--type", "updated", "--tier", "secondary", "--window", "full",
                       "--count", len(moved), "-o", "json")
        assert [json_format.Parse(line, events_pb2.Event()) for line in shown.splitlines()] == moved
        refused = run(daemon, "watch", "--window", 128)
        assert refused.returncode == 1 and "UNKNOWN_WINDOW" in refused.stderr


def test_who_comes_too_late_can_go_on_with_a_snapshot(start_daemon):
    daemon = start_daemon(events={"max_events": 20})
    with Client(daemon.connect()) as client:
        for number in range(40):
            client.cache(number + 1, [number] * 5)
        refused = run(daemon, "watch", "--from-revision", 1)
        assert refused.returncode == 1 and "--snapshot" in refused.stderr
        begin, *told = run_ok(daemon, "watch", "--from-revision", 1, "--resnapshot", "--count", 3, "-o", "json").splitlines()
        assert json.loads(begin)["snapshot_begin"] is True and len(told) == 3
