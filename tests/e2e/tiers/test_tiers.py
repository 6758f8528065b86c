"""Two tiers of memory: bytes go down and come up as they were, and operators have their say."""

import json
import random
import subprocess

import numpy as np
import pool_view
import pytest
from pagoda_client import Client, OperationError, handles
from pagoda_daemon import CALL_SECONDS, PAGODAD
from pagoda.v1 import admin_pb2, cache_pb2, types_pb2

TOKENS_PER_BLOCK = 4
PRIMARY, SECONDARY = 8, 16


@pytest.fixture
def daemon(start_daemon):
    return start_daemon(cache={"primary": PRIMARY, "secondary": SECONDARY})


class Writer:
    """An engine without a model. The KV of a token is a number made of it and its place, in every
    layer and head."""

    def __init__(self, client):
        self.client = client
        (self.primary,) = [pool for pool in client.pools() if pool.tier == types_pb2.TIER_PRIMARY]
        self.kv = pool_view.map_pool(self.primary)
        self.sequences = 0

    def at(self, blocks, position):
        return self.kv[blocks[position // TOKENS_PER_BLOCK].slot_index, :, :, :, position % TOKENS_PER_BLOCK, :]

    @staticmethod
    def value(tokens, position):
        return np.float32(hash(tuple(tokens[:position + 1])) % 1_000_003)

    def run(self, tokens):
        """The whole life of a sequence: checks the match, writes the rest, commits, frees. Returns
        the matched tokens."""
        self.sequences += 1
        added = self.client.add(self.sequences, tokens)
        self.client.wait(added.ready_ticket)
        blocks = handles(added.tables[0].blocks)
        for position in range(added.matched_tokens):
            assert (self.at(blocks, position) == self.value(tokens, position)).all(), (tokens, position)
        for position in range(added.matched_tokens, len(tokens)):
            self.at(blocks, position)[:] = self.value(tokens, position)
        self.client.commit(self.sequences, len(tokens))
        self.client.free_sequence(self.sequences)
        return added.matched_tokens


def window(daemon):
    return daemon.status().windows[0]


def tier(daemon, which):
    (found,) = [tier for tier in window(daemon).tiers if tier.tier == which]
    return found


def test_both_tiers_are_described_and_counted(daemon):
    with Client(daemon.channel) as client:
        pools = {pool.tier: pool for pool in client.pools()}
        assert set(pools) == {types_pb2.TIER_PRIMARY, types_pb2.TIER_SECONDARY}
        # One slot more than blocks: the spare slot for swaps.
        assert pools[types_pb2.TIER_SECONDARY].num_slots == SECONDARY + 1
        assert client.opened.cache.windows[0].secondary_blocks == SECONDARY
        assert list(client.opened.cache.windows[0].blocks) == [PRIMARY, SECONDARY]
        assert [(one.tier, one.name) for one in client.opened.cache.tiers] == [
            (types_pb2.TIER_PRIMARY, "primary"), (types_pb2.TIER_SECONDARY, "secondary")]
        assert tier(daemon, types_pb2.TIER_SECONDARY).capacity_blocks == SECONDARY
        assert tier(daemon, types_pb2.TIER_SECONDARY).free_blocks == SECONDARY


def test_a_prefix_is_offloaded_and_onboarded_with_its_bytes(daemon):
    prompt = list(range(100, 112))
    with Client(daemon.channel) as client:
        writer = Writer(client)
        assert writer.run(prompt) == 0
        assert client.offload(prompt) == 3
        assert tier(daemon, types_pb2.TIER_PRIMARY).free_blocks == PRIMARY
        assert tier(daemon, types_pb2.TIER_SECONDARY).cached_blocks == 3
        writer.kv[:] = -1  # The primary tier has no bytes of it any more.
        assert client.match(prompt).matched_tokens == 11
        moved = client.prefetch(prompt[:8])
        assert (moved.matched_tokens, moved.blocks) == (8, 2)
        assert tier(daemon, types_pb2.TIER_PRIMARY).cached_blocks == 2
        # The match onboards the rest.
        assert writer.run(prompt + [1]) == 12
        counted = window(daemon)
        assert (counted.offloaded_blocks_total, counted.onboarded_blocks_total) == (3, 3)
        assert counted.secondary_hit_tokens_total == 4


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
        writer = Writer(client)
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


def test_an_onboarded_block_is_offloaded_again_without_a_copy(daemon):
    prompt = list(range(100, 112))
    with Client(daemon.channel) as client:
        writer = Writer(client)
        writer.run(prompt)
        client.offload(prompt)
        assert client.prefetch(prompt[:8]).blocks == 2
        daemon.settle()
        below = tier(daemon, types_pb2.TIER_SECONDARY)
        assert (below.cached_blocks, below.duplicate_blocks) == (3, 2)
        inspected = daemon.admin.InspectPrefix(admin_pb2.InspectPrefixRequest(tokens=prompt), timeout=CALL_SECONDS).blocks
        assert [(block.tier, list(block.lower_tiers)) for block in inspected] == [
            (types_pb2.TIER_PRIMARY, [types_pb2.TIER_SECONDARY])] * 2 + [(types_pb2.TIER_SECONDARY, [])]
        assert client.offload(prompt) == 2
        counted = window(daemon)
        assert (counted.offloaded_blocks_total, counted.freely_evicted_blocks_total) == (3, 2)
        assert tier(daemon, types_pb2.TIER_SECONDARY).duplicate_blocks == 0
        writer.kv[:] = -1  # The primary tier has no bytes of it any more.
        assert writer.run(prompt + [1]) == 12


def test_a_secondary_block_holds_what_the_primary_one_held(daemon):
    with Client(daemon.channel) as client:
        writer = Writer(client)
        writer.run([7, 7, 7, 7])
        client.offload([7, 7, 7, 7])
        (block,) = handles(client.match([7, 7, 7, 7, 7]).blocks)
        (below,) = [pool for pool in client.pools() if pool.tier == types_pb2.TIER_SECONDARY]
        slot = pool_view.map_pool(below)[block.slot_index]
        for offset in range(TOKENS_PER_BLOCK):
            assert (slot[:, :, :, offset, :] == Writer.value([7] * 4, offset)).all()


def test_more_prompts_than_the_primary_tier_holds_are_kept(daemon):
    rng = random.Random(5)
    prompts = [[start] + [rng.randrange(50) for _ in range(8)] for start in range(7)]
    with Client(daemon.channel) as client:
        writer = Writer(client)
        for prompt in prompts:
            writer.run(prompt)
        # 7 prompts of 3 blocks each fit into 8 + 16 blocks.
        assert [client.match(prompt).matched_tokens for prompt in prompts] == [8] * 7
        for _ in range(3):
            rng.shuffle(prompts)
            for prompt in prompts:
                assert writer.run(prompt) == 8
        assert window(daemon).offloaded_blocks_total + window(daemon).freely_evicted_blocks_total > 20
        assert window(daemon).lost_blocks_total == 0


def test_sequences_never_read_a_byte_that_is_not_theirs(daemon):
    rng = random.Random(11)
    with Client(daemon.channel) as client:
        writer = Writer(client)
        matched = sum(writer.run([rng.randrange(2) for _ in range(rng.randrange(1, 25))]) for _ in range(400))
        counted = window(daemon)
        assert matched == counted.prefix_hit_tokens_total > 1000
        assert counted.secondary_hit_tokens_total > 100
        assert counted.displaced_blocks_total > 10
        assert counted.partial_copies_total > 10
        assert counted.lost_blocks_total == 0
    copies = daemon.status().transfers
    assert copies.failed_total == 0
    moved = {(direction.source, direction.target): direction.copies_total for direction in copies.directions}
    assert moved[types_pb2.TIER_PRIMARY, types_pb2.TIER_SECONDARY] >= counted.offloaded_blocks_total


def test_a_batch_may_wait_for_its_own_copies(daemon):
    with Client(daemon.channel) as client:
        writer = Writer(client)
        writer.run(list(range(8)))
        before = client.batch().completed_ticket
        offload = cache_pb2.Operation(offload_prefix=cache_pb2.OffloadPrefixRequest(tokens=range(8)))
        wait = cache_pb2.Operation(wait_for_ticket=cache_pb2.WaitForTicketRequest(ticket=before + 2))
        match = cache_pb2.Operation(match_prefix=cache_pb2.MatchPrefixRequest(tokens=range(9)))
        result = client.batch(offload, wait, match)
        assert result.results[0].offload_prefix.ready_ticket == before + 2
        assert result.results[1].wait_for_ticket.completed_ticket == before + 2
        assert result.results[2].match_prefix.matched_tokens == 8
        assert result.completed_ticket == before + 2
        with pytest.raises(OperationError) as failure:
            client.wait(before + 3)
        assert failure.value.reason == "UNKNOWN_TICKET"


def test_a_pinned_prefix_outlives_what_evicts_the_others(daemon):
    with Client(daemon.channel) as client:
        writer = Writer(client)
        writer.run(list(range(8)))
        pinned = client.pin(range(8))
        assert (pinned.pinned_tokens, pinned.blocks) == (8, 2)
        assert tier(daemon, types_pb2.TIER_PRIMARY).pinned_blocks == 2
        for start in range(30):
            writer.run([1000 + start] * 20)
        assert client.match(range(9)).matched_tokens == 8
        (pin,) = client.pins().pins
        assert (pin.pin_id, pin.client_name, pin.blocks) == (pinned.pin_id, "e2e", 2)
        assert not pin.HasField("expire_time")
        client.unpin(pinned.pin_id)
        with pytest.raises(OperationError) as failure:
            client.unpin(pinned.pin_id)
        assert failure.value.reason == "UNKNOWN_PIN"
        for start in range(30):
            writer.run([2000 + start] * 20)
        assert client.match(range(9)).matched_tokens == 0


def test_pins_have_a_budget_and_a_lease(daemon):
    with Client(daemon.channel) as client:
        client.cache(1, range(32))
        budget = client.pins().budget_blocks
        assert budget == (PRIMARY + SECONDARY) // 4
        with pytest.raises(OperationError) as failure:
            client.pin(range(4 * (budget + 1)))
        assert failure.value.reason == "PIN_BUDGET_EXCEEDED"
        assert client.pins().pinned_blocks == 0
        pinned = client.pin(range(4 * budget), lease_ms=100)
        assert pinned.blocks == budget
        daemon.wait_until(lambda daemon: daemon.status().pins == 0)
        assert client.pins().pinned_blocks == 0
        with pytest.raises(OperationError) as failure:
            client.pin(range(4), lease_ms=0)
        assert failure.value.reason == "INVALID_ARGUMENT"


def test_an_invalidated_prefix_is_forgotten_in_both_tiers(daemon):
    with Client(daemon.channel) as client:
        client.cache(1, range(8))
        client.cache(2, list(range(4)) + [90] * 4)
        assert client.offload(range(8)) == 1, "the parent of the other prompt's block stays in the primary tier"
        assert client.invalidate([0, 1]) == 3
        assert client.match(range(9)).matched_tokens == 0
        client.cache(3, range(8))
        client.cache(4, range(8), namespace=types_pb2.Namespace(cache_salt="s"))
        assert client.invalidate([], namespace=types_pb2.Namespace(cache_salt="s")) == 2
        assert client.match(range(9)).matched_tokens == 8


def test_blocks_of_lower_priority_are_evicted_first(start_daemon):
    daemon = start_daemon(cache={"primary": PRIMARY})
    low, high = [1] * 12, [2] * 12
    with Client(daemon.channel) as client:
        client.cache(1, high, retention=[types_pb2.RetentionRange(priority=80)])
        client.cache(2, low)
        client.cache(3, [3] * 12)  # Evicts blocks.
        assert client.match(low).matched_tokens < 11
        assert client.match(high).matched_tokens == 11
        assert client.retain(high, types_pb2.RetentionRange(priority=1, token_end=8)) == 2
        with pytest.raises(OperationError) as failure:
            client.retain(high, types_pb2.RetentionRange(priority=101))
        assert failure.value.reason == "INVALID_ARGUMENT"


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
        writer = Writer(client)
        writer.run(list(range(28)))
        daemon.wait_until(lambda daemon: tier(daemon, types_pb2.TIER_PRIMARY).free_blocks >= 4)
        assert writer.run(list(range(29))) == 28


def test_a_full_pool_of_running_sequences_offloads_nothing(daemon):
    with Client(daemon.channel) as client:
        client.add(1, range(4 * PRIMARY))
        with pytest.raises(OperationError) as failure:
            client.add(2, [9])
        assert failure.value.reason == "BLOCKS_EXHAUSTED"
        assert tier(daemon, types_pb2.TIER_SECONDARY).free_blocks == SECONDARY


def test_capacity_is_told_before_it_is_taken(daemon):
    with Client(daemon.channel) as client:
        client.cache(1, range(8))
        client.add(2, [50] * 8)
        asked = client.run(query_capacity=cache_pb2.QueryCapacityRequest(tokens=range(12), max_new_tokens=5))
        assert asked.matched_tokens == 8
        (full,) = asked.windows
        assert (full.window_size, full.available_blocks) == (0, PRIMARY - 2)
        assert full.blocks_now <= full.blocks_to_completion <= 5
        asked = client.run(query_capacity=cache_pb2.QueryCapacityRequest(sequence_id=2, max_new_tokens=1))
        assert (asked.windows[0].blocks_now, asked.windows[0].blocks_to_completion) == (0, 1)


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
        assert pagodactl(daemon, "offload", *named) == {"blocks": 3}
        assert tier(daemon, types_pb2.TIER_SECONDARY).cached_blocks == 3
        moved = pagodactl(daemon, "prefetch", *named)
        assert moved.pop("elapsed_seconds") > 0
        assert moved == {"blocks": 3, "fetched_blocks": 0, "matched_tokens": 12}
        assert pagodactl(daemon, "retain", *named, "--priority", "80", "--from", "4") == {"blocks": 2, "priority": 80}
        pinned = pagodactl(daemon, "pin", *named, "--lease", "60")
        assert (pinned["pinned_tokens"], pinned["blocks"]) == (12, 3)
        (pin,) = pagodactl(daemon, "pins")["pins"]
        assert (pin["pin_id"], pin["cache_salt"], pin["client_name"]) == (pinned["pin_id"], "s", "pagodactl")
        pagodactl(daemon, "unpin", str(pin["pin_id"]))
        assert pagodactl(daemon, "status")["pins"] == "0"
        assert pagodactl(daemon, "invalidate", "--all", "--salt", "s") == {"removed_blocks": 3, "durable": True}


def test_bytes_and_lists_say_how_large_tiers_are(start_daemon):
    block_bytes = 2 * 2 * 2 * 4 * 8 * 4  # Layers, K and V, heads, tokens, elements, bytes each.
    daemon = start_daemon(cache={"primary": f"{10 * block_bytes}B", "secondary": [3]})
    assert tier(daemon, types_pb2.TIER_PRIMARY).capacity_blocks == 10
    assert tier(daemon, types_pb2.TIER_SECONDARY).capacity_blocks == 3


def test_windows_have_pools_of_their_own(start_daemon):
    layers = [{"count": 3, "window": 8, "num_kv_heads": 2, "head_dim": 8}, {"count": 1, "num_kv_heads": 1, "head_dim": 4}]
    daemon = start_daemon(cache={"primary": [6, 12], "layers": layers})
    with Client(daemon.channel) as client:
        assert [(w.window_size, w.primary_blocks) for w in client.opened.cache.windows] == [(8, 6), (0, 12)]
        pools = {pool.window_size: pool for pool in client.pools()}
        assert list(pools[8].layers) == [0, 1, 2] and list(pools[0].layers) == [3]
        client.add(1, range(16))
        client.commit(1, 16)
        tables = {table.window_size: table for table in client.describe(1).tables}
        assert len(handles(tables[0].blocks)) == 4
        # The window has passed the first 16 - 8 tokens.
        passed = [block.block_id == 2**32 - 1 for block in handles(tables[8].blocks)]
        assert passed == [True, True, False, False]
        client.free_sequence(1)
        assert client.match(range(17)).matched_tokens == 16
