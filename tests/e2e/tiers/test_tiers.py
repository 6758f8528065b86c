"""Two tiers of memory: bytes go down and come up as they were, and operators have their say."""

import json
import random
import subprocess

import pytest
from kv_engine import KvEngine
from pagoda_client import Client
from pagoda_daemon import PAGODAD
from pagoda.v1 import types_pb2

PRIMARY, SECONDARY = 8, 16


@pytest.fixture
def daemon(start_daemon):
    return start_daemon(cache={"primary": PRIMARY, "secondary": SECONDARY})


def window(daemon):
    return daemon.status().windows[0]


def tier(daemon, which):
    (found,) = [tier for tier in window(daemon).tiers if tier.tier == which]
    return found


def test_both_tiers_are_described_and_counted(daemon):
    with Client(daemon.channel) as client:
        pools = {pool.tier: pool for pool in client.pools()}
        assert set(pools) == {types_pb2.TIER_PRIMARY, types_pb2.TIER_SECOND}
        # One slot more than blocks: the spare slot for swaps.
        assert pools[types_pb2.TIER_SECOND].num_slots == SECONDARY + 1
        assert client.opened.cache.windows[0].blocks[1] == SECONDARY
        assert list(client.opened.cache.windows[0].blocks) == [PRIMARY, SECONDARY]
        assert [(one.tier, one.name) for one in client.opened.cache.tiers] == [
            (types_pb2.TIER_PRIMARY, "primary"), (types_pb2.TIER_SECOND, "secondary")]
        assert tier(daemon, types_pb2.TIER_SECOND).capacity_blocks == SECONDARY
        assert tier(daemon, types_pb2.TIER_SECOND).free_blocks == SECONDARY


def test_a_prefix_is_offloaded_and_onboarded_with_its_bytes(daemon):
    prompt = list(range(100, 112))
    with Client(daemon.channel) as client:
        writer = KvEngine(client)
        assert writer.run(prompt) == 0
        assert client.offload(prompt) == 3
        assert tier(daemon, types_pb2.TIER_PRIMARY).free_blocks == PRIMARY
        assert tier(daemon, types_pb2.TIER_SECOND).cached_blocks == 3
        writer.kv[:] = -1  # The primary tier has no bytes of it any more.
        assert client.match(prompt).matched_tokens == 11
        moved = client.prefetch(prompt[:8])
        assert (moved.matched_tokens, moved.blocks) == (8, 2)
        assert tier(daemon, types_pb2.TIER_PRIMARY).cached_blocks == 2
        # The match onboards the rest.
        assert writer.run(prompt + [1]) == 12
        counted = window(daemon)
        assert (counted.offloaded_blocks_total, counted.onboarded_blocks_total) == (3, 3)
        assert counted.lower_hit_tokens_total == 4


def test_four_tiers_are_four_lines_of_the_configuration(start_daemon):
    """A prefix is offloaded from tier to tier as others come, and is onboarded from the last tier
    with its bytes."""
    sizes = {"near": 8, "middle": 4, "far": 4, "farthest": 8}
    daemon = start_daemon(cache={"tiers": [
        {"name": name, "medium": "host", "size": size, "min_priority": 0} for name, size in sizes.items()]})
    prompts = [[1000 * i + j for j in range(16)] for i in range(5)]

    def blocks_by_tier():
        return {one.name: one.cached_blocks - one.duplicate_blocks for one in window(daemon).tiers}

    with Client(daemon.channel) as client:
        assert [one.name for one in client.opened.cache.tiers] == list(sizes)
        assert list(client.opened.cache.windows[0].blocks) == list(sizes.values())
        writer = KvEngine(client)
        for prompt in prompts:
            assert writer.run(prompt) == 0
        daemon.settle()
        assert blocks_by_tier() == sizes | {"farthest": 4}
        writer.kv[:] = -1  # The first tier has no bytes of the lower blocks any more.
        # The oldest prompt is in the farthest tier. All tokens match but the one that must be
        # computed.
        assert client.match(prompts[0]).matched_tokens == 15
        assert client.prefetch(prompts[0]).blocks == 4
        daemon.settle()
        assert client.match(prompts[0]).matched_tokens == 15
        assert writer.run(prompts[0] + [7]) == 16
        daemon.settle()
        shown = json.dumps(pagodactl(daemon, "status"))
        assert all(f'"{name}"' in shown for name in sizes), shown


def test_sequences_never_read_a_byte_that_is_not_theirs(daemon):
    rng = random.Random(11)
    with Client(daemon.channel) as client:
        writer = KvEngine(client)
        matched = sum(writer.run([rng.randrange(2) for _ in range(rng.randrange(1, 25))]) for _ in range(400))
        counted = window(daemon)
        assert matched == counted.prefix_hit_tokens_total > 1000
        assert counted.lower_hit_tokens_total > 100
        assert counted.displaced_blocks_total > 10
        assert counted.partial_copies_total > 10
        assert counted.lost_blocks_total == 0
    copies = daemon.status().transfers
    assert copies.failed_total == 0
    moved = {(direction.source, direction.target): direction.copies_total for direction in copies.directions}
    assert moved[types_pb2.TIER_PRIMARY, types_pb2.TIER_SECOND] >= counted.offloaded_blocks_total


def test_a_priority_ends_with_its_duration(daemon):
    with Client(daemon.channel) as client:
        client.cache(1, [1] * 4, retention=[types_pb2.RetentionRange(priority=90, duration_ms=50)])
        daemon.wait_until(lambda daemon: window(daemon).expired_priorities_total == 1)
        client.cache(2, [2] * 4, generated_priority=90)


def test_low_priorities_are_not_worth_the_secondary_tier(start_daemon):
    daemon = start_daemon(cache={"primary": PRIMARY, "secondary": SECONDARY, "offload": {"min_priority": 50}})
    with Client(daemon.channel) as client:
        for start in range(6):
            priority = 60 if start % 2 else 40
            client.cache(start + 1, [start] * 9, retention=[types_pb2.RetentionRange(priority=priority)])
        counted = window(daemon)
        assert counted.evicted_blocks_total > 0
        found = [client.match([start] * 9).matched_tokens for start in range(6)]
        assert found[1::2] == [8, 8, 8] and found[0] == 0


def test_a_watermark_keeps_primary_blocks_free(start_daemon):
    daemon = start_daemon(cache={"primary": PRIMARY, "secondary": SECONDARY, "offload": {"watermark_permille": 500}})
    with Client(daemon.channel) as client:
        writer = KvEngine(client)
        writer.run(list(range(28)))
        daemon.wait_until(lambda daemon: tier(daemon, types_pb2.TIER_PRIMARY).free_blocks >= 4)
        assert writer.run(list(range(29))) == 28


def pagodactl(daemon, *arguments):
    """What the command line prints, as JSON."""
    command = [PAGODAD.with_name("pagodactl"), "--endpoint", f"unix:{daemon.unix_socket}", "-o", "json", *arguments]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True, timeout=30).stdout)


def test_the_command_line_does_it_too(daemon, tmp_path):
    prompt = tmp_path / "prompt"
    prompt.write_text(" ".join(map(str, range(12))))
    with Client(daemon.channel) as client:
        client.cache(1, range(12), namespace=types_pb2.Namespace(cache_salt="s"))
        named = ["--token-file", str(prompt), "--salt", "s"]
        assert pagodactl(daemon, "offload", *named)["blocks"] == 3
        assert tier(daemon, types_pb2.TIER_SECOND).cached_blocks == 3
        moved = pagodactl(daemon, "prefetch", *named)
        assert (moved["blocks"], moved["fetched_blocks"], moved["matched_tokens"]) == (3, 0, 12)
        assert pagodactl(daemon, "retain", *named, "--priority", "80", "--from", "4") == {"blocks": 2}
        pinned = pagodactl(daemon, "pin", *named, "--lease", "60")
        assert (pinned["pinned_tokens"], pinned["blocks"]) == (12, 3)
        (pin,) = pagodactl(daemon, "pins")["pins"]
        assert (pin["pin_id"], pin["namespace"]["cache_salt"], pin["client_name"]) == (pinned["pin_id"], "s", "pagodactl")
        pagodactl(daemon, "unpin", str(pin["pin_id"]))
        assert pagodactl(daemon, "status")["pins"] == "0"
        assert pagodactl(daemon, "invalidate", "--all", "--salt", "s") == {"removed_blocks": "3", "durable_ticket": "0"}


def test_bytes_and_lists_say_how_large_tiers_are(start_daemon):
    block_bytes = 2 * 2 * 2 * 4 * 8 * 4  # Layers, K and V, heads, tokens, elements, bytes each.
    daemon = start_daemon(cache={"primary": f"{10 * block_bytes}B", "secondary": [3]})
    assert tier(daemon, types_pb2.TIER_PRIMARY).capacity_blocks == 10
    assert tier(daemon, types_pb2.TIER_SECOND).capacity_blocks == 3
