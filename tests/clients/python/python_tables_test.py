"""Lists of blocks in the Python package: block tables, and what requests and answers have of
blocks."""

import random
import struct

import numpy as np
import pagoda
import pytest
from pagoda import _operations, _sequences
from pagoda._call import Pending
from pagoda._contract import v1
from pagoda._session import Session
from pagoda._wire import BatchRequest
from pagoda.tables import Table
from pagoda.values import NO_BLOCK, Block

PASSED = (NO_BLOCK, 0, NO_BLOCK)


def row_bytes(*rows):
    return struct.pack(f"<{sum(map(len, rows))}I", *(number for row in rows for number in row))


def check_equal(table, model):
    """The table has the model's handles."""
    blocks = [None if handle == PASSED else Block(*handle) for handle in model]
    slots = [-1 if block is None else block.slot_index for block in blocks]
    assert len(table) == len(model) and list(table.blocks) == blocks and table.slots.tolist() == slots
    token_slots = [-1 if slot < 0 else 4 * slot + place for slot in slots for place in range(4)]
    for start in range(0, len(token_slots) + 1, 3):
        for end in (start, (start + len(token_slots)) // 2, len(token_slots)):
            if start <= end:
                assert table.token_slots(start, end).tolist() == token_slots[start:end]
    with pytest.raises(IndexError):
        table.token_slots(0, len(token_slots) + 1)


@pytest.mark.parametrize("seed", range(20))
def test_a_table_is_the_list_of_its_entries(seed):
    rng = random.Random(seed)
    table, model = Table(0, 4), []
    for _ in range(60):
        # Often at the end or shortly before, as a growing sequence changes its table.
        first = rng.choice([len(model), max(len(model) - 1, 0), rng.randrange(len(model) + 1)])
        new = [PASSED if rng.random() < 0.1 else tuple(rng.randrange(1, 1000) for _ in range(3)) for _ in range(rng.randrange(4))]
        model[first:] = new
        table._take(v1.BlockTable(first_block=first, blocks=row_bytes(*new)))
        if rng.random() < 0.5:
            check_equal(table, model)
    check_equal(table, model)


def test_a_table_does_not_share_its_memory():
    raw = bytearray(row_bytes((1, 2, 3), (4, 5, 6)))
    table = Table(0, 4)
    table._put(0, np.frombuffer(raw, "<u4").reshape(-1, 3))
    slots, blocks = table.slots, table.blocks
    slots[:] = 9
    raw[:] = bytes(len(raw))
    assert table.slots.tolist() == [3, 6]
    table._put(1, np.array([[7, 8, 9]], np.uint32))
    assert blocks == (Block(1, 2, 3), Block(4, 5, 6)) and table.blocks == (Block(1, 2, 3), Block(7, 8, 9))


def test_a_growing_table_moves_seldom():
    table, places = Table(0, 4), set()
    for index in range(10_000):
        table._put(index, np.array([[index, 1, index]], np.uint32))
        places.add(table._rows.ctypes.data)
    assert len(places) < 30 and len(table) == 10_000


def session_of(*windows):
    opened = v1.OpenSessionResponse(lease_ms=1000)
    opened.cache.tokens_per_block = 4
    for size in windows:
        opened.cache.windows.add(window_size=size)
    return Session(opened)


def settle(session, call, **result):
    """The outcome of one operation with this result. Returns it and the operation on the wire."""
    pending = Pending(call)
    request = session.request([pending])
    assert isinstance(request, BatchRequest)
    answer = v1.BatchResult()
    answer.results.add(**result)
    session.settle(request, [pending], answer)
    (operation,) = request.batch.operations
    return pending.result(), operation


def sequences_of(session, count, tokens):
    """Open sequences with one block of their own in each window."""
    views = []
    for _ in range(count):
        view = _sequences.SequenceView(session.next_id(), 4)
        tables = [{"window_size": window.window_size, "blocks": row_bytes((view.id, 1, 10 * view.id))} for window in session.cache.windows]
        settle(session, _sequences.open_sequence(view, tokens), add_sequence={"tables": tables})
        views.append(view)
    return views


def test_a_step_changes_the_tables_of_the_sequences_that_grew():
    session = session_of(0, 128)
    views = sequences_of(session, 4, [1, 2, 3])
    failed = {"index": 3, "error": {"code": 8, "message": "no block is free"}}
    result = {"grown": row_bytes((0, 1, 1), (2, 0, 2)), "ready_tickets": [7, 9], "failed": [failed],
              "blocks": row_bytes((20, 1, 200), (21, 1, 210), (30, 2, 300), (31, 2, 310), PASSED, (33, 2, 330))}
    errors, operation = settle(session, _sequences.append_step(views, [4, 5, [6, 7], 8], computed=[3, None, 2, 0]), append_step=result)
    assert operation.append_step == v1.AppendStepRequest(
        sequence_ids=[1, 2, 3, 4], tokens=[4, 5, 6, 7, 8], token_counts=[1, 1, 2, 1], computed_tokens=[3, 0, 2, 0])
    assert list(errors) == [3] and isinstance(errors[3], pagoda.Exhausted)
    assert [view.token_count for view in views] == [4, 4, 5, 3]
    assert [view.computed_tokens for view in views] == [3, 0, 2, 0]
    assert [view.ready_ticket for view in views] == [7, 0, 9, 0]
    assert [view.tables[0].slots.tolist() for view in views] == [[10, 200], [20], [300, 310], [40]]
    assert [view.tables[128].slots.tolist() for view in views] == [[10, 210], [20], [-1, 330], [40]]


def test_a_step_says_only_what_is_not_usual():
    views = sequences_of(session_of(0), 2, [1])
    request = lambda call: v1.AppendStepRequest.FromString(call.packed)
    assert request(_sequences.append_step(views, [5, 6])) == v1.AppendStepRequest(sequence_ids=[1, 2], tokens=[5, 6])
    assert request(_sequences.append_step(views, [[5], []])).token_counts == [1, 0]
    views[1]._known_losses = 3
    assert request(_sequences.append_step(views, [5, 6])).known_losses == [0, 3]
    assert request(_sequences.append_step([], [])) == v1.AppendStepRequest()


@pytest.mark.parametrize("computed", [-1, 1 << 32, 1.5, "1"])
def test_a_number_that_is_none_is_refused(computed):
    views = sequences_of(session_of(0), 2, [1])
    with pytest.raises(ValueError, match="not every number of .* is an integer of 32 bits without sign"):
        _sequences.append_step(views, [5, 6], computed=[1, computed])
    with pytest.raises(ValueError, match="not every number of .* is an integer of 32 bits without sign"):
        _operations.fill_blocks([pagoda.BlockFill(Block(1, 2, 3), computed)])


def test_raw_blocks_are_rows_on_the_wire():
    session = session_of(0)
    blocks, _ = settle(session, _operations.allocate_blocks(2), allocate_blocks={"blocks": row_bytes((1, 2, 3), (4, 5, 6)), "ready_ticket": 8})
    assert blocks == pagoda.Allocation((Block(1, 2, 3), Block(4, 5, 6)), 8)
    _, operation = settle(session, _operations.free_blocks(blocks, window_size=7), free_blocks={})
    assert operation.free_blocks == v1.FreeBlocksRequest(window_size=7, blocks=row_bytes((1, 2), (4, 5)))
    fills = [pagoda.BlockFill(blocks.blocks[0], 3), pagoda.BlockFill(blocks.blocks[1], 4, finalize=True)]
    _, operation = settle(session, _operations.fill_blocks(fills), fill_blocks={})
    assert operation.fill_blocks.blocks == row_bytes((1, 2, 3, 0), (4, 5, 4, 1))
    states, operation = settle(session, _operations.describe_blocks(iter(blocks)), describe_blocks={"blocks": [{"holders": 1}, {"cached": True}]})
    assert operation.describe_blocks.blocks == row_bytes((1, 2), (4, 5))
    assert states == (pagoda.BlockState(1, 0, False, False), pagoda.BlockState(0, 0, False, True))
    _, operation = settle(session, _operations.free_blocks([]), free_blocks={})
    assert operation.free_blocks == v1.FreeBlocksRequest(), "the daemon refuses it"


def test_a_match_has_its_blocks():
    found, _ = settle(session_of(0), _operations.match(range(9)), match_prefix={"matched_tokens": 8, "blocks": row_bytes((1, 2, 3), (4, 5, 6))})
    assert found.blocks == (Block(1, 2, 3), Block(4, 5, 6))
