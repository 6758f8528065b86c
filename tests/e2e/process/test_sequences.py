"""Sequences that branch and shrink, deferred releases, and extra ids and images, which tell equal
tokens apart."""

import numpy as np
import pool_view
import pytest
from pagoda_client import Client, OperationError, handles, references
from pagoda.v1 import cache_pb2, types_pb2

CAPACITY = 64


@pytest.fixture
def client(daemon):
    with Client(daemon.channel) as opened:
        yield opened


def slots(table):
    return [block.slot_index for block in handles(table.blocks)]


def test_a_fork_shares_blocks_and_copies_its_tail_before_it_grows(daemon, client):
    kv = pool_view.map_pool(client.pools()[0])
    added = client.add(1, range(6))
    parent = slots(added.tables[0])
    kv[parent[1], :, :, :, :2, :] = 77
    client.commit(1, 6)
    forked = client.fork(1, 2)
    assert (forked.token_count, forked.computed_tokens) == (6, 6)
    assert slots(forked.tables[0]) == parent
    assert daemon.primary().active_blocks == 2
    grown = client.append(2, [60])
    client.wait(grown.ready_ticket)
    (table,) = grown.added
    assert table.first_block == 1
    assert slots(table)[0] != parent[1]
    assert (kv[slots(table)[0], :, :, :, :2, :] == 77).all()
    assert slots(client.describe(1).tables[0]) == parent, "the parent's table does not change"
    with pytest.raises(OperationError) as failure:
        client.fork(1, 2)
    assert failure.value.reason == "SEQUENCE_EXISTS"
    client.free_sequence(1)
    client.free_sequence(2)
    assert daemon.primary().active_blocks == 0


def test_beams_are_independent(daemon, client):
    client.add(1, range(9))
    client.commit(1, 9)
    for beam in range(2, 8):
        client.fork(1, beam)
    for beam in range(1, 8):
        grown = client.append(beam, [100 + beam], computed_tokens=9)
        client.wait(grown.ready_ticket)
    tails = {slots(client.describe(beam).tables[0])[2] for beam in range(1, 8)}
    assert len(tails) == 7
    for beam in range(1, 8):
        client.commit(beam, 10)
        client.free_sequence(beam)
    for beam in range(1, 8):
        assert client.match(list(range(9)) + [100 + beam, 0]).matched_tokens == 10


def test_refused_tokens_are_dropped(daemon, client):
    client.add(1, range(5))
    client.commit(1, 5)
    client.append(1, range(5, 12))
    truncated = client.truncate(1, 6)
    assert (truncated.token_count, truncated.computed_tokens) == (6, 5)
    described = client.describe(1)
    assert (described.token_count, described.reserved_tokens, len(handles(described.tables[0].blocks))) == (6, 6, 2)
    client.append(1, [99], computed_tokens=6)
    assert client.describe(1).token_count == 7
    for count in (0, 8):
        with pytest.raises(OperationError) as failure:
            client.truncate(1, count)
        assert failure.value.reason == "INVALID_COUNT"


def test_truncation_of_a_shared_block_copies_it(daemon, client):
    kv = pool_view.map_pool(client.pools()[0])
    block = slots(client.add(1, range(8)).tables[0])
    kv[block[1]] = 5
    client.commit(1, 8)
    client.fork(1, 2)
    truncated = client.truncate(2, 6)
    client.wait(truncated.ready_ticket)
    (table,) = truncated.tables
    assert table.first_block == 1 and slots(table)[0] != block[1]
    assert (kv[slots(table)[0], :, :, :, :2, :] == 5).all()
    assert client.match(range(9)).matched_tokens == 8, "the other sequence's block stays cached"


def test_a_slot_is_released_when_its_step_is_completed(daemon, client):
    blocks = client.run(step=7, allocate_blocks=cache_pb2.AllocateBlocksRequest(count=CAPACITY)).blocks
    client.run(step=7, free_blocks=cache_pb2.FreeBlocksRequest(blocks=references(handles(blocks)[:10])))
    assert daemon.primary().in_flight_blocks == 10
    with pytest.raises(OperationError) as failure:
        client.run(step=8, completed_step=6, allocate_blocks=cache_pb2.AllocateBlocksRequest(count=1))
    assert failure.value.reason == "BLOCKS_EXHAUSTED"
    client.run(step=8, completed_step=7, allocate_blocks=cache_pb2.AllocateBlocksRequest(count=10))
    assert daemon.primary().in_flight_blocks == 0
    for step, completed_step in ((7, 7), (9, 6), (9, 10)):
        with pytest.raises(OperationError) as failure:
            client.batch(step=step, completed_step=completed_step)
        assert failure.value.reason == "STEP_BACKWARDS"


def test_extra_ids_tell_equal_tokens_apart(daemon, client):
    client.cache(1, range(8), extra_token_ids=[0] * 7 + [5])
    assert client.match(range(9)).matched_tokens == 7
    assert client.match(range(9), extra_token_ids=[0] * 7 + [5, 0]).matched_tokens == 8
    assert client.match(range(9), extra_token_ids=[1] + [0] * 8).matched_tokens == 0
    with pytest.raises(OperationError) as failure:
        client.add(2, range(9), extra_token_ids=[1])
    assert failure.value.reason == "INVALID_ARGUMENT"


def image(fill, start, count, offset=0):
    return types_pb2.MultimodalItem(digest=bytes([fill] * 32), token_start=start, token_count=count, item_offset=offset)


def test_images_tell_equal_tokens_apart(daemon, client):
    client.cache(1, [9] * 8, multimodal_items=[image(1, 2, 5)])
    assert client.match([9] * 9).matched_tokens == 2
    assert client.match([9] * 9, multimodal_items=[image(1, 2, 5)]).matched_tokens == 8
    assert client.match([9] * 9, multimodal_items=[image(2, 2, 5)]).matched_tokens == 2
    assert client.match([9] * 9, multimodal_items=[image(1, 2, 5, offset=1)]).matched_tokens == 2


@pytest.mark.parametrize("items", [
    [image(1, 0, 0)],
    [image(1, 0, 9)],
    [image(1, 4, 2), image(1, 0, 2)],
    [image(1, 0, 3), image(2, 2, 2)],
    [types_pb2.MultimodalItem(digest=b"short", token_count=1)],
])
def test_items_that_do_not_fit_the_tokens_are_refused(daemon, client, items):
    with pytest.raises(OperationError) as failure:
        client.add(1, range(8), multimodal_items=items)
    assert failure.value.reason == "INVALID_ARGUMENT"
    assert daemon.primary().active_blocks == 0


@pytest.mark.parametrize("fields", [
    {"retention": [types_pb2.RetentionRange(token_start=4, token_end=4)]},
    {"retention": [types_pb2.RetentionRange(), types_pb2.RetentionRange(token_start=4)]},
    {"retention": [types_pb2.RetentionRange(priority=101)]},
    {"retention": [types_pb2.RetentionRange(duration_ms=0)]},
    {"generated_priority": 256},
    {"generated_duration_ms": 5},
])
def test_a_retention_that_says_nothing_sensible_is_refused(daemon, client, fields):
    with pytest.raises(OperationError) as failure:
        client.add(1, range(8), **fields)
    assert failure.value.reason == "INVALID_ARGUMENT"
    assert daemon.primary().active_blocks == 0


def test_tenants_share_nothing_unless_they_name_none(daemon, client):
    client.cache(1, range(8), namespace=types_pb2.Namespace(tenant="a"))
    assert client.match(range(9), namespace=types_pb2.Namespace(tenant="a")).matched_tokens == 8
    assert client.match(range(9), namespace=types_pb2.Namespace(tenant="b")).matched_tokens == 0
    assert client.match(range(9)).matched_tokens == 0


def test_a_partial_block_is_copied_into_the_sequences_own(daemon, client):
    kv = pool_view.map_pool(client.pools()[0])
    first = slots(client.add(1, range(8)).tables[0])
    for slot in first:
        kv[slot] = np.arange(4, dtype=np.float32)[None, None, None, :, None]
    client.commit(1, 8)
    client.free_sequence(1)
    added = client.add(2, [0, 1, 2, 3, 4, 5, 60, 70])
    client.wait(added.ready_ticket)
    assert added.matched_tokens == 6
    mine = slots(added.tables[0])
    assert mine[0] == first[0] and mine[1] != first[1]
    assert (kv[mine[1], :, :, :, 0, :] == 0).all() and (kv[mine[1], :, :, :, 1, :] == 1).all()
