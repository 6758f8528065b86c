"""The Python package's batches and steps: several operations in one call."""

import re
import threading

import pagoda
import pytest

pytestmark = pytest.mark.usefixtures("transport")


@pytest.fixture
def daemon(start_daemon):
    return start_daemon(server={"http_address": "127.0.0.1:0"})


@pytest.fixture
def client(daemon):
    with pagoda.connect(f"unix:{daemon.unix_socket}") as opened:
        yield opened


def batches_run(daemon, transport):
    """How many batches the daemon has run."""
    counter = {"grpc": r'^pagoda_grpc_requests_total\{.*Execute".*\} (\d+)$', "rings": r"^pagoda_ring_batches_total (\d+)$"}
    return sum(int(count) for count in re.findall(counter[transport], daemon.http("/metrics")[1], re.M))


def test_a_batch_is_one_call(daemon, client, transport):
    with client.batch() as batch:
        sequence = batch.sequence(range(10))
        batch.commit(sequence, computed=10)
        batch.append(sequence, 77)
        child = batch.fork(sequence)
        found = batch.match(range(11))
        blocks = batch.allocate_blocks(2)
        assert len(batch) == 6
        with pytest.raises(RuntimeError):
            found.result()
        with pytest.raises(RuntimeError):
            sequence.table
    assert batches_run(daemon, transport) == 1
    assert (sequence.token_count, sequence.computed_tokens, child.token_count) == (11, 10, 11)
    assert (found.result().matched_tokens, len(blocks.result())) == (8, 2)
    with client.batch() as batch:
        batch.free(sequence)
        batch.free(child)
        batch.free_blocks(blocks.result())
    assert sequence.freed and child.freed
    assert daemon.primary().active_blocks == 0


def test_a_decode_step_is_one_operation(daemon, client):
    sequences = [client.sequence([100 * i, 100 * i + 1, 100 * i + 2]) for i in range(1, 4)]
    assert client.append_step(sequences, [7, 8, 9], computed=[3, None, 3]) == {}
    assert [sequence.token_count for sequence in sequences] == [4, 4, 4]
    assert [sequence.computed_tokens for sequence in sequences] == [3, 0, 3]
    assert [len(sequence.table) for sequence in sequences] == [1, 1, 1]
    sequences[1].free()
    failed = client.append_step(sequences, [[10, 11], 5, []], computed=[6, None, 9])
    assert {index: error.reason for index, error in failed.items()} == {1: "UNKNOWN_SEQUENCE", 2: "COMPUTED_BEYOND_TOKENS"}
    assert (sequences[0].token_count, sequences[0].computed_tokens) == (6, 6)
    # The client's table equals the daemon's.
    told = list(sequences[0].table.blocks)
    assert len(told) == 2
    sequences[0].describe()  # Takes the daemon's tables.
    assert list(sequences[0].table.blocks) == told
    assert (sequences[2].token_count, sequences[2].computed_tokens) == (4, 3)
    with pytest.raises(ValueError):
        client.append_step(sequences, [1, 2])
    with pytest.raises(pagoda.BadRequest):
        client.append_step([], [])
    with client.batch() as batch:
        step = batch.append_step([sequences[0], sequences[2]], [1, 2])
    assert step.result() == {}
    assert sequences[2].token_count == 5


def test_operations_of_a_batch_fail_by_themselves_and_are_told_by_class(daemon, client):
    caught = []
    try:
        with client.batch() as batch:
            fine = batch.allocate_blocks(1)
            batch.allocate_blocks(0)
            batch.unpin(99)
            unopened = batch.sequence([])
            also_fine = batch.match([1, 2])
    except* pagoda.NotFound as missing:
        caught += [error.reason for error in missing.exceptions]
    except* pagoda.BadRequest as bad:
        assert isinstance(bad, pagoda.BatchFailed)
        caught += [error.reason for error in bad.exceptions]
    assert sorted(caught) == ["INVALID_COUNT", "INVALID_COUNT", "UNKNOWN_PIN"]
    assert len(fine.result()) == 1 and also_fine.result().matched_tokens == 0
    with pytest.raises(pagoda.BadRequest):
        unopened.table
    assert unopened.freed


def test_a_batch_that_is_sent_by_hand_raises_for_itself_alone(client):
    batch = client.batch()
    refused = batch.allocate_blocks(0)
    batch.send()
    assert refused.error.reason == "INVALID_COUNT"
    with pytest.raises(pagoda.BadRequest):
        refused.result()
    with pytest.raises(RuntimeError):
        batch.send()
    with pytest.raises(RuntimeError):
        batch.match([1])
    too_large = client.batch()
    first = too_large.match([1])
    for _ in range(4096):
        too_large.match([1])
    with pytest.raises(pagoda.BadRequest) as failure:
        too_large.send()
    assert failure.value.reason == first.error.reason == "BATCH_TOO_LARGE"


def test_nothing_is_sent_where_the_block_raises(daemon, client, transport):
    with pytest.raises(ZeroDivisionError), client.batch() as batch:
        batch.allocate_blocks(1)
        1 / 0
    assert batches_run(daemon, transport) == 0


def test_a_slot_is_released_when_its_step_is_completed(daemon, client):
    with client.batch(step=7) as batch:
        blocks = batch.allocate_blocks(10)
    client.free_blocks(blocks.result())  # Step 7 still applies to later operations.
    assert daemon.primary().in_flight_blocks == 10
    client.advance(step=8, completed_step=6)
    assert daemon.primary().in_flight_blocks == 10
    with pytest.raises(pagoda.BadRequest) as failure:
        client.advance(step=8, completed_step=9)
    assert failure.value.reason == "STEP_BACKWARDS"
    with pytest.raises(pagoda.BadRequest):
        client.advance(step=6)
    client.match([1])  # The refused steps do not apply.
    client.advance(completed_step=7)
    assert daemon.primary().free_blocks == 64


def test_a_batch_waits_for_copies_in_the_middle(start_daemon):
    daemon = start_daemon(cache={"primary": 8, "secondary": 8})
    with pagoda.connect(f"unix:{daemon.unix_socket}") as client:
        with client.sequence(range(8)) as sequence:
            sequence.commit(computed=8)
        ticket = client.completed_ticket + 2
        with client.batch() as batch:
            moved = batch.offload(range(8))
            waited = batch.wait_for_ticket(ticket)
        assert moved.result().ready_ticket == ticket == waited.result() == client.completed_ticket


def test_threads_share_a_client(daemon, client):
    failures = []

    def work(number):
        try:
            for turn in range(20):
                with client.sequence([number] * 6) as sequence:
                    sequence.wait_ready()
                    sequence.commit(computed=6)
                    sequence.append(turn, computed=6)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert daemon.status().sequences == 0
    assert client.match([3] * 7).matched_tokens == 6
