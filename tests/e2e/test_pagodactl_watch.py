"""pagodactl watch beside a real daemon: a snapshot, what follows, and what is asked to be shown."""

import json
import subprocess

from pagoda_client import Client
from pagodactl import RUN_SECONDS, command, run, run_ok


def cached(lines):
    """The block ids that JSON lines leave cached."""
    ids = set()
    for event in lines:
        ids |= {block["block_id"] for block in event.get("blocks", ())}
        ids -= set(event["block_ids"] if event["type"] == "removed" else ())
    return ids


def test_a_snapshot_comes_first_and_then_what_happens(daemon):
    with Client(daemon.channel) as client:
        client.cache(1, list(range(8)))
        client.cache(2, [7] * 9)
        revision = daemon.status().revision
        watching = subprocess.Popen(command(daemon, "watch", "--snapshot", "-o", "json"), stdout=subprocess.PIPE, text=True)
        try:
            lines = []
            while not lines or lines[-1]["type"] != "snapshot_end":
                lines.append(json.loads(watching.stdout.readline()))
            assert lines[0] == {"type": "snapshot_begin", "cache": daemon.config["cache"]["name"], "epoch": f"{daemon.status().epoch:016x}"}
            assert lines[-1] == {"revision": revision, "type": "snapshot_end"}
            assert {line["revision"] for line in lines[1:-1]} == {0}
            assert len(cached(lines)) == daemon.primary().cached_blocks == 5
            client.cache(3, [9] * 4)
            after = json.loads(watching.stdout.readline())
            assert (after["type"], after["revision"]) == ("stored", revision + 1)
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
            assert {block["tier"] for block in json.loads(stored)["blocks"]} == {"hbm"}
        refused = run(daemon, "watch", "--tier", "nvme")
        assert refused.returncode == 1 and "the cache has no tier 'nvme'; its tiers: hbm, dram" in refused.stderr


def test_hashes_by_chunks(daemon):
    with Client(daemon.channel) as client:
        client.cache(1, list(range(18)))
        options = "watch", "--from-revision", "1", "--count", "2", "--hashes", "--chunk-tokens", "8"
        created, stored = (json.loads(line) for line in run_ok(daemon, *options, "-o", "json").splitlines())
        assert created["capacity_blocks"] == {"primary": daemon.primary().capacity_blocks}
        assert [sorted(block) for block in stored["blocks"]] == [["block_hash", "tier"]] * 2
        line = run_ok(daemon, *options).splitlines()[-1]
        assert line.endswith(f"hashes {stored['blocks'][0]['block_hash']},{stored['blocks'][1]['block_hash']} in primary")


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
        everything = [json.loads(line) for line in
                      run_ok(daemon, "watch", "--from-revision", 1, "--count", daemon.status().revision, "-o", "json").splitlines()]
        moved = [event for event in everything if event["type"] == "updated" and "secondary" in event.get("tier", {}).values()]
        assert moved
        shown = run_ok(daemon, "watch", "--from-revision", 1, "--type", "updated", "--tier", "secondary", "--window", "full",
                       "--count", len(moved), "-o", "json")
        assert [json.loads(line) for line in shown.splitlines()] == moved
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
        assert json.loads(begin)["type"] == "snapshot_begin" and len(told) == 3
