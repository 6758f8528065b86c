"""The Python package's sequences, prefixes, pins and raw blocks."""

import numpy as np
import pagoda
import pytest

pytestmark = pytest.mark.usefixtures("transport")

CAPACITY = 64
PROMPT = list(range(10))


@pytest.fixture
def client(daemon):
    with pagoda.connect(f"unix:{daemon.unix_socket}") as opened:
        yield opened


def cache(client, tokens, **fields):
    """A sequence's whole life: its blocks are cached afterwards."""
    with client.sequence(tokens, **fields) as sequence:
        sequence.wait_ready()
        sequence.commit(computed=len(tokens))


def test_a_sequence_finds_what_an_earlier_one_computed(daemon, client):
    with client.sequence(PROMPT) as first:
        assert (first.matched_tokens, first.token_count, first.computed_tokens) == (0, 10, 0)
        assert len(first.table) == 3
        first.commit(computed=10)
        assert first.computed_tokens == 10
        first.append(11, computed=10)
        first.append([12, 13], computed=11)
        assert (first.token_count, first.computed_tokens, len(first.table)) == (13, 11, 4)
    assert daemon.primary().active_blocks == 0
    with client.sequence(PROMPT + [99]) as second:
        assert second.matched_tokens == second.computed_tokens == 10
        second.wait_ready()
        assert second.table.blocks[:2] == first.table.blocks[:2]


def test_tokens_come_as_any_integers(client):
    cache(client, np.arange(8))
    for tokens in (range(9), np.arange(9, dtype=np.uint32), tuple(range(9)), iter(range(9))):
        assert client.match(tokens).matched_tokens == 8
    with client.sequence(np.arange(8)) as sequence:
        sequence.append(np.int64(8))
        sequence.append(np.array([9]))
        assert sequence.token_count == 10
        with pytest.raises(ValueError):
            sequence.append(1 << 32)


def test_a_table_tells_the_place_of_every_token(client):
    with client.sequence(PROMPT) as sequence:
        table = sequence.table
        slots = [block.slot_index for block in table.blocks]
        assert table.slots.tolist() == slots
        assert table.token_slots(0, 10).tolist() == [4 * slots[token // 4] + token % 4 for token in range(10)]
        assert table.token_slots(5, 6).tolist() == [4 * slots[1] + 1]
        assert table.token_slots(12, 12).tolist() == []
        with pytest.raises(IndexError):
            table.token_slots(5, 13)


def test_capacity_is_reserved_ahead_of_tokens(daemon, client):
    with client.sequence(PROMPT, reserved_tokens=4) as sequence:
        assert len(sequence.table) == 1
        sequence.reserve(8)
        assert len(sequence.table) == 3
        sequence.commit([10, 11], computed=12)
        assert sequence.token_count == 12
        with pytest.raises(pagoda.Conflict) as failure:
            sequence.commit([12])
        assert failure.value.reason == "RESERVATION_EXCEEDED"
        assert sequence.describe() == pagoda.SequenceInfo(token_count=12, computed_tokens=12, reserved_tokens=12, losses=0)


def test_a_fork_shares_until_it_grows_and_a_cut_goes_back(client):
    with client.sequence(PROMPT) as parent:
        parent.commit(computed=10)
        with parent.fork() as child:
            assert child.table.blocks == parent.table.blocks
            assert child.computed_tokens == 10
            child.append(70)
            child.wait_ready()
            assert child.table.blocks[:2] == parent.table.blocks[:2] and child.table.blocks[2] != parent.table.blocks[2]
            child.truncate(6)
            assert (child.token_count, child.computed_tokens, len(child.table)) == (6, 6, 2)
            child.wait_ready()
        assert parent.describe().token_count == 10


def test_capacity_is_told_and_not_taken(daemon, client):
    asked = client.query_capacity(PROMPT, max_new_tokens=30)
    assert asked.fits_now and asked.fits_to_completion
    assert asked.windows == (pagoda.WindowCapacity(window_size=0, blocks_now=3, blocks_to_completion=10, available_blocks=64),)
    with client.sequence(PROMPT) as sequence:
        assert not sequence.query_capacity(300).fits_to_completion
    assert daemon.primary().active_blocks == 0


def test_without_capacity_nothing_is_taken(daemon, client):
    with client.sequence(range(4 * CAPACITY - 4)):
        with pytest.raises(pagoda.Exhausted) as failure:
            client.sequence(range(1000, 1009))
        assert (failure.value.reason, failure.value.retry_after > 0) == ("BLOCKS_EXHAUSTED", True)
        assert daemon.status().sequences == 1


def test_a_block_that_raises_frees_its_sequence_and_keeps_its_error(daemon, client):
    with pytest.raises(ZeroDivisionError), client.sequence(PROMPT):
        1 / 0
    assert daemon.status().sequences == 0
    with client.sequence(PROMPT) as sequence:
        sequence.free()
    assert sequence.freed
    with pytest.raises(pagoda.NotFound) as failure:
        sequence.append(1)
    assert failure.value.reason == "UNKNOWN_SEQUENCE"


def test_namespaces_and_images_tell_equal_tokens_apart(client):
    image = pagoda.MultimodalItem(digest=bytes(32), token_start=4, token_count=4)
    cache(client, [9] * 8, namespace=pagoda.Namespace(lora_id=0, cache_salt="s"), multimodal_items=[image])
    assert client.match([9] * 9).matched_tokens == 0
    namespace = pagoda.Namespace(lora_id=0, cache_salt="s")
    assert client.match([9] * 9, namespace=namespace).matched_tokens == 4
    assert client.match([9] * 9, namespace=namespace, multimodal_items=[image]).matched_tokens == 8
    cache(client, [3] * 4, extra_token_ids=[0, 0, 0, 7])
    assert client.match([3] * 5).matched_tokens == 3


def test_raw_blocks_are_taken_and_given_back(daemon, client):
    blocks = client.allocate_blocks(5)
    assert len(blocks) == 5 and daemon.primary().active_blocks == 5
    client.free_blocks(list(blocks)[:2])
    with pytest.raises(pagoda.Conflict) as failure:
        client.free_blocks(blocks)
    assert failure.value.reason in ("DOUBLE_FREE", "STALE_HANDLE")
    client.free_blocks(list(blocks)[2:])
    assert daemon.primary().free_blocks == CAPACITY


def test_a_pin_holds_for_its_block_and_not_longer(daemon, client):
    cache(client, range(8))
    with client.pin(range(8), lease=60) as pin:
        assert (pin.pinned_tokens, pin.blocks) == (8, 2)
        (listed,) = client.list_pins().pins
        assert (listed.pin_id, listed.blocks) == (pin.pin_id, 2) and listed.expire_time is not None
        assert daemon.primary().pinned_blocks == 2
    assert client.list_pins().pinned_blocks == 0
    with pytest.raises(pagoda.NotFound) as failure:
        pin.unpin()
    assert failure.value.reason == "UNKNOWN_PIN"
    with client.pin(range(500, 508)) as nothing:
        assert nothing.pin_id == 0


def test_a_pin_ends_with_its_lease(daemon, client):
    cache(client, range(8))
    pin = client.pin(range(8), lease=0.1)
    daemon.wait_until(lambda daemon: daemon.status().pins == 0)
    with pytest.raises(pagoda.NotFound):
        client.unpin(pin.pin_id)
    cache(client, range(100, 100 + 4 * 20))
    with pytest.raises(pagoda.Exhausted) as failure:
        client.pin(range(100, 100 + 4 * 20))
    assert failure.value.reason == "PIN_BUDGET_EXCEEDED"


def test_prefixes_move_between_the_tiers(start_daemon):
    daemon = start_daemon(cache={"primary": 8, "secondary": 16})
    with pagoda.connect(f"unix:{daemon.unix_socket}") as client:
        cache(client, range(12))
        moved = client.offload(range(12))
        client.wait(moved.ready_ticket)
        assert moved.blocks == 3 and client.completed_ticket >= moved.ready_ticket
        primary, secondary = client.status().windows[0].tiers
        assert (primary.tier, primary.free_blocks) == (pagoda.Tier.PRIMARY, 8)
        assert (secondary.tier, secondary.cached_blocks) == (pagoda.Tier.SECOND, 3)
        assert [(one.priority, one.blocks) for one in secondary.cached_by_priority] == [(35, 3)] and not primary.cached_by_priority
        back = client.prefetch(range(8))
        assert (back.matched_tokens, back.blocks) == (8, 2)
        with client.sequence(range(13)) as sequence:
            sequence.wait_ready()
            assert sequence.matched_tokens == 12
            assert client.completed_ticket >= sequence.ready_ticket > 0
        with pytest.raises(pagoda.NotFound) as failure:
            client.wait(client.completed_ticket + 1)
        assert failure.value.reason == "UNKNOWN_TICKET"


def test_retention_is_set_and_prefixes_are_forgotten(daemon, client):
    cache(client, range(12), retention=[pagoda.Retention(80, token_end=4), pagoda.Retention(20, token_start=4)],
          generated_priority=90, generated_duration=60)
    assert client.set_retention(range(12), [pagoda.Retention(60, token_start=4, duration=600)]) == 2
    with pytest.raises(pagoda.BadRequest):
        client.set_retention(range(12), [pagoda.Retention(101)])
    assert client.invalidate(range(5)) == 2
    assert client.match(range(12)).matched_tokens == 4
    assert client.invalidate([]) == 1
    cache(client, range(12))
    assert client.reset_prefix_cache() == 3
    assert client.match(range(12)).matched_tokens == 0


def test_every_window_has_its_table(start_daemon):
    layers = [{"count": 3, "window": 8, "num_kv_heads": 2, "head_dim": 8}, {"count": 1, "num_kv_heads": 1, "head_dim": 4}]
    daemon = start_daemon(cache={"primary": [12, 24], "layers": layers})
    with pagoda.connect(f"unix:{daemon.unix_socket}") as client:
        cache(client, range(32))
        with client.sequence(range(33)) as sequence:
            assert sequence.matched_tokens == 32
            assert set(sequence.tables) == {8, 0} and len(sequence.tables[0]) == len(sequence.tables[8]) == 9
            assert sequence.tables[8].blocks[0] is None and sequence.tables[8].slots[0] == -1
            assert sequence.tables[8].token_slots(0, 4).tolist() == [-1] * 4
            sequence.wait_ready()
            sequence.commit(computed=33)
            sequence.append(range(100, 120), computed=53)
            sequence.describe()
            assert [block is None for block in sequence.tables[8].blocks].count(False) <= 4
            assert None not in sequence.tables[0].blocks


def test_the_status_is_the_daemons(daemon, client):
    cache(client, range(8))
    client.match(range(8))
    seen, told = client.status(), daemon.status()
    assert (seen.sessions, seen.draining, seen.uptime.ToNanoseconds() > 0) == (1, False, True)
    for status in (seen, told):  # Between the two answers only the clock has moved.
        status.ClearField("time")
        status.ClearField("uptime")
    assert seen.SerializeToString(deterministic=True) == told.SerializeToString(deterministic=True)


KEYS = [b"first", bytes(64), b"\x00"]


def test_keys_name_whole_blocks(daemon, client):
    with client.sequence(keys=KEYS) as first:
        assert (first.matched_tokens, first.token_count, len(first.table)) == (0, 12, 3)
        first.commit(computed=8)
        first.append(keys=[b"fourth"], computed=12)
        assert (first.token_count, len(first.table)) == (16, 4)
        first.commit(computed=16)
    with client.sequence(keys=KEYS) as second:
        assert second.matched_tokens == second.computed_tokens == 12, "all of them match"
        with pytest.raises(pagoda.BadRequest) as refused:
            second.commit([1, 2, 3, 4])
        assert refused.value.reason == "KEYS_AND_TOKENS"
        with pytest.raises(pagoda.BadRequest) as refused:
            second.reserve(3)
        assert refused.value.reason == "WHOLE_BLOCKS_ONLY"
    assert client.match(keys=KEYS + [b"fourth"]).matched_tokens == 16
    assert client.match(keys=[b"fourt"]).matched_tokens == 0
    assert client.match(range(13)).matched_tokens == 0
    assert client.prefetch(keys=KEYS).matched_tokens == 12
    with client.pin(keys=KEYS) as pin:
        assert pin.pinned_tokens == 12
    for keys in ([b""], [bytes(65)]):
        with pytest.raises(pagoda.BadRequest) as refused:
            client.match(keys=keys)
        assert refused.value.reason == "INVALID_KEY"
    with pytest.raises(TypeError):
        client.match(keys=b"first")
    assert client.invalidate(keys=KEYS[:1]) == 4
    assert client.match(keys=KEYS).matched_tokens == 0


def test_a_watch_tells_keys(daemon, client):
    with pagoda.watch(f"unix:{daemon.unix_socket}", snapshot=True) as watch:
        mirror = pagoda.Mirror(client.cache.tokens_per_block)
        with client.sequence(keys=KEYS) as sequence:
            sequence.commit(computed=12)
        told = []
        for item in watch:
            mirror.apply(item)
            if isinstance(item, pagoda.Stored):
                assert item.namespace.keyed
                told += [block.key for block in item.blocks]
                if len(told) == len(KEYS):
                    break
        assert told == KEYS
        assert mirror.match(keys=KEYS).matched_tokens == 12
        assert mirror.match(keys=KEYS[1:]).matched_tokens == 0
