"""The Python package's event stream: it mends itself, and what it missed it says."""

import threading

import pagoda
import pytest
from tcp_proxy import TcpProxy


@pytest.fixture
def client(daemon):
    with pagoda.connect(daemon.grpc_address) as opened:
        yield opened


def cache(client, tokens):
    with client.sequence(tokens) as sequence:
        sequence.commit(computed=len(tokens))


def read_to(watch, revision):
    items = []
    while watch.revision < revision:
        items.append(next(watch))
    return items


def test_a_watch_misses_nothing_from_its_beginning_on(client):
    cache(client, range(4))
    with client.watch() as watch:
        assert (watch.revision, watch.epoch) == (client.revision, client.epoch)
        cache(client, range(10))
        client.free_blocks(client.allocate_blocks(2))
        client.reset_prefix_cache()
        full, tail, created, released, cleared = read_to(watch, client.status().revision)
    assert isinstance(full, pagoda.Stored) and (full.parent_block_id, full.namespace) == (0, pagoda.Namespace())
    assert [block.tokens for block in full.blocks] == [(4, 5, 6, 7)]
    assert isinstance(tail, pagoda.Stored) and tail.parent_hash == full.blocks[0].block_hash
    assert isinstance(created, pagoda.Created) and len(created.block_ids) == 2 and not created.capacity
    assert isinstance(released, pagoda.Removed) and released.reason == pagoda.RemovalReason.RELEASED
    assert isinstance(cleared, pagoda.Removed) and cleared.whole_window


def test_a_watch_from_a_revision_repeats_what_was_seen(client):
    with client.watch(from_revision=1) as live:
        for number in range(10):
            cache(client, [number] * 9)
        seen = read_to(live, client.revision)
    assert isinstance(seen[0], pagoda.Created) and seen[0].capacity == {pagoda.Tier.PRIMARY: 64}
    assert [item.revision for item in seen] == list(range(1, client.revision + 1))
    with client.watch(from_revision=7, epoch=client.epoch) as again:
        assert again.revision == 6
        assert read_to(again, client.revision) == seen[6:]


def test_a_cut_stream_goes_on_without_a_hole(daemon, client):
    with TcpProxy(daemon.grpc_address) as proxy, pagoda.watch(proxy.address, from_revision=1) as watch:
        seen = []
        for number in range(8):
            cache(client, [number] * 9)
            seen += read_to(watch, client.revision)
            assert proxy.cut() == 1
            cache(client, [100 + number] * 9)  # While nobody listens.
        seen += read_to(watch, client.revision)
        assert [item.revision for item in seen] == list(range(1, client.revision + 1))
        assert proxy.accepted >= 9
        with client.watch(from_revision=1) as whole:
            assert seen == read_to(whole, client.revision)


def test_what_the_daemon_no_longer_has_is_a_gap(start_daemon):
    daemon = start_daemon(events={"max_events": 20})
    with pagoda.connect(daemon.grpc_address) as client, TcpProxy(daemon.grpc_address) as proxy:
        with pagoda.watch(proxy.address) as watch:
            cache(client, range(4))
            (first,) = read_to(watch, client.revision)
            proxy.retarget("127.0.0.1:1")  # Nobody.
            proxy.cut()
            for number in range(40):
                cache(client, [number] * 5)
            proxy.retarget(daemon.grpc_address)
            gap = next(watch)
            assert isinstance(gap, pagoda.Gap)
            assert (gap.reason, gap.previous_revision) == ("REVISION_COMPACTED", first.revision)
            assert gap.epoch == gap.previous_epoch == client.epoch
            assert gap.next_revision == daemon.status().oldest_revision > first.revision + 1
            rest = read_to(watch, client.revision)
            assert [item.revision for item in rest] == list(range(gap.next_revision, client.revision + 1))


def test_another_daemon_behind_the_address_is_a_gap(start_daemon):
    daemon, successor = start_daemon(), start_daemon()
    with TcpProxy(daemon.grpc_address) as proxy, pagoda.watch(proxy.address) as watch:
        with pagoda.connect(daemon.grpc_address) as client:
            cache(client, range(9))
            read_to(watch, client.revision)
        before = (watch.epoch, watch.revision)
        with pagoda.connect(successor.grpc_address) as client:
            cache(client, range(4))
        proxy.retarget(successor.grpc_address)
        proxy.cut()
        gap = next(watch)
        assert isinstance(gap, pagoda.Gap) and gap.reason == "EPOCH_CHANGED"
        assert (gap.previous_epoch, gap.previous_revision) == before
        assert (gap.epoch, gap.next_revision) == (successor.status().epoch, 1)
        created, stored = next(watch), next(watch)
        assert (created.revision, stored.revision, stored.epoch) == (1, 2, gap.epoch)


def test_a_daemon_that_is_started_again_is_found_again(start_daemon):
    daemon = start_daemon()
    with pagoda.watch(f"unix:{daemon.unix_socket}", from_revision=1) as watch:
        assert next(watch).revision == 1
        daemon.terminate()
        daemon.start()
        gap = next(watch)
        assert isinstance(gap, pagoda.Gap) and gap.epoch == daemon.status().epoch
        assert next(watch).revision == 1


def test_a_start_that_cannot_be_had_is_refused(client):
    with pytest.raises(pagoda.WatchRefused) as failure:
        client.watch(from_revision=client.status().revision + 2)
    assert failure.value.reason == "REVISION_IN_FUTURE"
    assert failure.value.next_revision == client.status().revision + 1
    with pytest.raises(pagoda.WatchRefused) as failure:
        client.watch(from_revision=1, epoch=client.epoch ^ 1)
    assert (failure.value.reason, failure.value.epoch) == ("EPOCH_CHANGED", client.epoch)


def test_patience_has_an_end_and_the_watch_can_be_asked_again(daemon, client):
    with TcpProxy(daemon.grpc_address) as proxy, pagoda.watch(proxy.address, reconnect=0.3) as watch:
        proxy.retarget("127.0.0.1:1")
        proxy.cut()
        with pytest.raises(pagoda.Unavailable):
            next(watch)
        proxy.retarget(daemon.grpc_address)
        cache(client, range(4))
        for _ in range(100):
            try:
                assert next(watch).revision == client.revision
                break
            except pagoda.Unavailable:  # gRPC itself waits a while before it connects again.
                pass
        else:
            pytest.fail("the watch did not go on")


def test_closing_ends_the_iteration_in_another_thread(daemon, client):
    watch = client.watch()
    seen = []
    thread = threading.Thread(target=lambda: seen.extend(watch))
    thread.start()
    cache(client, range(4))
    daemon.wait_until(lambda _: len(seen) == 1)
    assert daemon.status().subscribers == 1
    watch.close()
    thread.join(20)
    assert not thread.is_alive()
    daemon.wait_until(lambda daemon: daemon.status().subscribers == 0)
    assert list(watch) == []
