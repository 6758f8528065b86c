"""Losses: lost KV, which a sequence reports until its caller acknowledges it, and lost answers,
whose batches are sent again."""

import pagoda
import pytest
from losing_daemon import LosingDaemon
from tcp_proxy import TcpProxy

PROMPT = list(range(10))


@pytest.fixture
def losing(daemon):
    with LosingDaemon(f"unix:{daemon.unix_socket}") as opened:
        yield opened


@pytest.fixture
def client(losing):
    with pagoda.connect(losing.address) as opened:
        yield opened


def test_a_commit_that_does_not_know_of_a_loss_is_refused_with_what_is_left(losing, client):
    with client.sequence(PROMPT) as sequence:
        sequence.commit(computed=10)
        losing.lose(sequence.id, 4)
        with pytest.raises(pagoda.KvLost) as failure:
            sequence.append(11, computed=10)
        lost = failure.value
        assert (lost.reason, lost.sequence_id, lost.computed_tokens, lost.losses) == ("KV_LOST", sequence.id, 4, 1)
        assert not lost.must_be_freed
        assert (sequence.token_count, sequence.computed_tokens, sequence.known_losses) == (10, 4, 0)


def test_commits_carry_a_loss_once_it_is_acknowledged(losing, client):
    with client.sequence(PROMPT) as sequence:
        sequence.commit(computed=10)
        losing.lose(sequence.id, 4)
        for _ in range(2):  # A retry without an acknowledgement fails again.
            with pytest.raises(pagoda.KvLost) as failure:
                sequence.append(11, computed=10)
        assert sequence.acknowledge(failure.value) == 4
        sequence.append(11, computed=10)
        assert losing.declared == [0, 1]
        assert (sequence.computed_tokens, sequence.loss) == (10, None)
        losing.lose(sequence.id, 8)
        with pytest.raises(pagoda.KvLost) as again:
            sequence.commit(computed=11)
        assert (again.value.losses, again.value.computed_tokens) == (2, 8)
        sequence.acknowledge(failure.value)  # This acknowledges the first loss, not the second.
        with pytest.raises(pagoda.KvLost):
            sequence.commit(computed=11)
        sequence.acknowledge(again.value)
        sequence.commit(computed=11)
        assert losing.declared == [0, 1, 2]


def test_a_step_tells_each_loss_by_its_sequence(losing, client):
    with client.sequence(PROMPT) as sequence, client.sequence(range(50, 60)) as other:
        client.append_step([sequence, other], [11, 61], computed=[10, 10])
        losing.lose(sequence.id, 4)
        failed = client.append_step([sequence, other], [12, 62], computed=[11, 11])
        assert list(failed) == [0]
        assert (failed[0].reason, failed[0].computed_tokens, failed[0].losses) == ("KV_LOST", 4, 1)
        assert (sequence.computed_tokens, other.computed_tokens) == (4, 11)
        assert sequence.acknowledge(failed[0]) == 4
        assert client.append_step([sequence, other], [12, 63], computed=[11, 12]) == {}
        assert (sequence.computed_tokens, sequence.token_count, other.token_count) == (11, 12, 13)


def test_any_answer_tells_of_a_loss(losing, client):
    with client.sequence(PROMPT) as sequence, client.sequence(range(50, 60)) as other:
        sequence.commit(computed=10)
        losing.lose(sequence.id, 8)
        assert sequence.loss is None
        client.match([1])
        assert (sequence.loss.computed_tokens, sequence.computed_tokens) == (8, 8)
        assert other.loss is None
        with pytest.raises(ValueError):
            other.acknowledge(sequence.loss)


def test_slots_whose_copy_failed_are_not_ready(losing, client):
    with client.sequence(PROMPT) as sequence:
        losing.lose(sequence.id, 0)
        client.match([1])
        with pytest.raises(pagoda.KvLost):
            sequence.wait_ready()
        sequence.acknowledge(sequence.loss)
        sequence.wait_ready()


def test_tokens_alone_need_no_acknowledgement(losing, client):
    with client.sequence(PROMPT) as sequence:
        sequence.commit(computed=10)
        losing.lose(sequence.id, 4)
        sequence.append(11)
        assert (sequence.token_count, sequence.computed_tokens) == (11, 4)


def test_a_fork_of_what_was_lost_knows_what_its_parent_knows(losing, client):
    with client.sequence(PROMPT) as sequence:
        sequence.commit(computed=10)
        losing.lose(sequence.id, 4)
        with sequence.fork() as child:
            with pytest.raises(pagoda.KvLost) as failure:
                child.append(11, computed=10)
            assert (failure.value.sequence_id, failure.value.computed_tokens) == (child.id, 4)
            child.acknowledge(failure.value)
            child.append(11, computed=10)
        sequence.acknowledge(sequence.loss)
        with sequence.fork() as child:
            child.append(11, computed=10)


def test_what_can_only_be_freed_says_so_and_is_freed(losing, client):
    with client.sequence(PROMPT) as sequence:
        sequence.commit(computed=10)
        losing.lose(sequence.id, 0, must_be_freed=True)
        with pytest.raises(pagoda.KvLost) as failure:
            sequence.reserve(1)
        assert failure.value.must_be_freed
        with pytest.raises(pagoda.KvLost):
            sequence.fork()


def test_a_batch_tells_the_loss_of_the_one_sequence_it_concerns(losing, client):
    with client.sequence(PROMPT) as sequence, client.sequence(range(50, 60)) as other:
        losing.lose(sequence.id, 0)
        batch = client.batch()
        refused = batch.append(sequence, 11, computed=10)
        ran = batch.append(other, 61, computed=10)
        batch.send()
        assert ran.error is None and other.computed_tokens == 10
        assert isinstance(refused.error, pagoda.KvLost) and refused.error.sequence_id == sequence.id
        sequence.acknowledge(refused.error)
        with client.batch() as batch:
            batch.append(sequence, 11, computed=10)
        assert losing.declared[-1] == 1


# --- Lost answers ---

FOR_EVER = 1_000_000


def test_a_batch_whose_answer_is_lost_is_sent_again_and_run_once(daemon, losing, client):
    losing.swallowed = 1
    with client.sequence(PROMPT) as sequence:
        losing.swallowed = 2
        sequence.append(range(20), computed=10)
        assert (sequence.token_count, sequence.describe().token_count) == (30, 30)
        losing.swallowed = 1
        client.allocate_blocks(3)
        assert daemon.primary().active_blocks == len(sequence.table) + 3
        losing.swallowed = 1
    assert daemon.status().sequences == 0


def test_a_batch_whose_answer_is_too_large_to_be_remembered_is_sent_once(start_daemon):
    daemon = start_daemon(cache={"primary": 20_000, "tokens_per_block": 1})
    with LosingDaemon(f"unix:{daemon.unix_socket}") as losing, pagoda.connect(losing.address) as client:
        losing.swallowed = 1
        with pytest.raises(pagoda.Unavailable):
            client.allocate_blocks(12_000)
        assert losing.received == 1
        with client.sequence(range(6000)) as sequence:
            losing.received, losing.swallowed = 0, 1
            with client.batch() as batch:  # The answers to append have only the new blocks.
                batch.append(sequence, 1)
                batch.append(sequence, 2)
            assert losing.received == 2
            losing.swallowed = 1
            with pytest.raises(pagoda.Unavailable), client.batch() as batch:
                batch.fork(sequence)
                batch.fork(sequence)
            assert losing.received == 3


def test_describe_brings_a_sequence_up_to_date_after_a_lost_answer(losing, client):
    with client.sequence(PROMPT) as sequence:
        losing.swallowed = FOR_EVER
        with pytest.raises(pagoda.Unavailable) as failure:
            sequence.append(range(20), computed=10)
        losing.swallowed = 0
        assert failure.value.reason == ""
        assert (sequence.token_count, len(sequence.table)) == (10, 3)
        assert sequence.describe().token_count == 30
        assert (sequence.token_count, sequence.computed_tokens, len(sequence.table)) == (30, 10, 8)


def test_a_sequence_whose_opening_got_no_answer_can_be_described_and_freed(daemon, losing, client):
    losing.swallowed = FOR_EVER
    with pytest.raises(pagoda.Unavailable), client.batch() as batch:
        sequence = batch.sequence(PROMPT)
    losing.swallowed = 0
    assert daemon.status().sequences == 1
    assert sequence.describe().token_count == 10
    assert len(sequence.table) == 3
    sequence.free()
    assert daemon.status().sequences == 0


def test_a_connection_that_is_cut_between_calls_is_not_noticed(daemon):
    with TcpProxy(daemon.grpc_address) as proxy, pagoda.connect(proxy.address) as client:
        with client.sequence(PROMPT) as sequence:
            for token in range(20):
                proxy.cut()
                sequence.append(token)
            assert sequence.describe().token_count == 30
