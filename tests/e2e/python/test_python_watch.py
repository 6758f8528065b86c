"""The Python package's event stream recovers by itself, reports what it missed, and reports all
blocks on request."""

import threading

import pagoda
import pytest
from tcp_proxy import TcpProxy
from watch_relay import WatchRelay


@pytest.fixture
def client(daemon):
    with pagoda.connect(daemon.grpc_address) as opened:
        yield opened


def cache(client, tokens):
    with client.sequence(tokens) as sequence:
        sequence.commit(computed=len(tokens))


def read_snapshot(watch):
    """The items of a watch up to the end of the first snapshot that is whole."""
    items = [next(watch)]
    while not isinstance(items[-1], pagoda.SnapshotEnd):
        assert watch.revision == 0, "a snapshot cannot be resumed"
        items.append(next(watch))
    return items


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


def test_hashes_by_chunks_are_those_of_the_prompt(client, daemon):
    """With four tokens per block: every second block, and of it the hash and the tier."""
    hashes = pagoda.block_hashes(range(18), 4)
    cache(client, range(18))
    with client.watch(from_revision=1, content="hashes", chunk_tokens=8) as watch, \
            pagoda.watch(daemon.grpc_address, snapshot=True, content="hashes", chunk_tokens=8) as late:
        created, stored = read_to(watch, client.revision)
        assert created.capacity == {pagoda.Tier.PRIMARY: 64} and not created.block_ids
        assert [block.block_hash for block in stored.blocks] == [hashes[1], hashes[3]]
        for block in stored.blocks:
            assert (block.tier, block.block_id, block.tokens, block.priority) == (pagoda.Tier.PRIMARY, 0, (), 0)
        (again,) = [item for item in read_snapshot(late) if isinstance(item, pagoda.Stored)]
        assert (again.blocks, again.revision) == (stored.blocks, 0)
        client.invalidate(range(12))
        (removed,) = read_to(watch, client.revision)
        assert (removed.block_hashes, removed.block_ids) == ((hashes[3],), ())
    for wrong in {"content": "hashes", "chunk_tokens": 6}, {"chunk_tokens": 8}:
        with pytest.raises(pagoda.PagodaError) as refused:
            client.watch(**wrong)
        assert refused.value.reason == "INVALID_ARGUMENT"


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
            cache(client, [100 + number] * 9)  # While no stream is open.
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
            proxy.retarget("127.0.0.1:1")  # Nothing listens there.
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
        gone = next(watch)
        assert isinstance(gone, pagoda.Removed) and gone.pools and gone.whole_window
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
            except pagoda.Unavailable:  # gRPC waits a while before it reconnects.
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


def test_a_snapshot_is_all_there_is_and_what_comes_follows(client):
    cache(client, range(10))
    kept = client.allocate_blocks(2)
    cache(client, range(4))  # The block is cached already: no event.
    with client.watch(snapshot=True) as watch:
        begin, *told, end = read_snapshot(watch)
        assert (begin, end) == (pagoda.SnapshotBegin(client.epoch, ""), pagoda.SnapshotEnd(client.epoch, client.revision))
        assert watch.revision == end.revision
        assert {item.revision for item in told} == {0}
        created = [item for item in told if isinstance(item, pagoda.Created)]
        assert [item.capacity for item in created if item.capacity] == [{pagoda.Tier.PRIMARY: 64}]
        assert {block_id for item in created for block_id in item.block_ids} == {block.block_id for block in kept}
        stored = [block for item in told if isinstance(item, pagoda.Stored) for block in item.blocks]
        assert sorted(block.tokens for block in stored) == [(0, 1, 2, 3), (4, 5, 6, 7), (8, 9)]
        cache(client, [7] * 5)
        client.free_blocks(kept)
        after = read_to(watch, client.revision)
        assert [item.revision for item in after] == list(range(end.revision + 1, client.revision + 1))


def test_a_snapshot_goes_with_no_beginning_of_another_kind(client):
    for beginning in ({"from_revision": 1}, {"epoch": client.epoch}):
        with pytest.raises(ValueError, match="snapshot"):
            client.watch(snapshot=True, **beginning)


def test_a_snapshot_that_breaks_begins_anew(start_daemon):
    daemon = start_daemon(cache={"primary": 6000})
    with pagoda.connect(daemon.grpc_address) as client, WatchRelay(daemon.grpc_address) as relay:
        for number in range(40):
            cache(client, [number] * 600)
        seen = []

        def breaks(message):
            """The third message of the first stream: behind a part of the snapshot."""
            seen.append(message)
            return len(seen) == 3

        relay.breaks = breaks
        with pagoda.watch(relay.address, snapshot=True) as watch:
            items = read_snapshot(watch)
            begins = [place for place, item in enumerate(items) if isinstance(item, pagoda.SnapshotBegin)]
            assert [items[place].reason for place in begins] == ["", "STREAM_BROKEN"]
            assert begins[1] > 1 and not any(message.snapshot_end for message in seen[:3]), "the first stream breaks within the snapshot"
            assert [request.snapshot for request in relay.requests] == [True, True]
            stored = [block.block_id for item in items[begins[1]:] if isinstance(item, pagoda.Stored) for block in item.blocks]
            assert len(stored) == len(set(stored)) == daemon.primary().cached_blocks > 4096
            revision = watch.revision
            cache(client, [5] * 5)
            assert [item.revision for item in read_to(watch, client.revision)] == list(range(revision + 1, client.revision + 1))


@pytest.mark.parametrize("beginning", [{"snapshot": True}, {"from_revision": 1, "resnapshot": True}])
def test_what_the_daemon_no_longer_has_is_a_snapshot_where_it_is_wanted(start_daemon, beginning):
    daemon = start_daemon(events={"max_events": 20})
    with pagoda.connect(daemon.grpc_address) as client, TcpProxy(daemon.grpc_address) as proxy:
        with pagoda.watch(proxy.address, **beginning) as watch:
            if "snapshot" in beginning:
                read_snapshot(watch)
            cache(client, range(4))
            read_to(watch, client.revision)
            proxy.retarget("127.0.0.1:1")  # Nothing listens there.
            proxy.cut()
            for number in range(40):
                cache(client, [number] * 5)
            proxy.retarget(daemon.grpc_address)
            begin, *told, end = read_snapshot(watch)
            assert begin == pagoda.SnapshotBegin(client.epoch, "REVISION_COMPACTED")
            assert end.revision == client.revision
            stored = sum(len(item.blocks) for item in told if isinstance(item, pagoda.Stored))
            assert stored == daemon.primary().cached_blocks > 40


def test_another_daemon_behind_the_address_is_a_snapshot_where_it_is_wanted(start_daemon):
    daemon, successor = start_daemon(), start_daemon()
    with TcpProxy(daemon.grpc_address) as proxy, pagoda.watch(proxy.address, resnapshot=True) as watch:
        with pagoda.connect(daemon.grpc_address) as client:
            cache(client, range(9))
            read_to(watch, client.revision)
        with pagoda.connect(successor.grpc_address) as client:
            cache(client, range(4))
            proxy.retarget(successor.grpc_address)
            proxy.cut()
            begin, *_, stored, end = read_snapshot(watch)
            assert begin == pagoda.SnapshotBegin(client.epoch, "EPOCH_CHANGED")
            assert [block.tokens for block in stored.blocks] == [(0, 1, 2, 3)]
            assert (end.revision, watch.epoch) == (client.revision, client.epoch)


def test_a_start_that_cannot_be_had_is_a_snapshot_where_it_is_wanted(start_daemon):
    daemon = start_daemon(events={"max_events": 20})
    with pagoda.connect(daemon.grpc_address) as client:
        for number in range(40):
            cache(client, [number] * 5)
        next_revision = client.revision + 1
        for reason, start in {"REVISION_COMPACTED": {"from_revision": 1}, "REVISION_IN_FUTURE": {"from_revision": next_revision + 1},
                              "EPOCH_CHANGED": {"from_revision": next_revision, "epoch": client.epoch ^ 1}}.items():
            with client.watch(resnapshot=True, **start) as watch:
                assert read_snapshot(watch)[0] == pagoda.SnapshotBegin(client.epoch, reason)
        with client.watch(resnapshot=True, from_revision=next_revision, epoch=client.epoch) as watch:  # This start is available, so there is no snapshot.
            cache(client, range(4))
            assert [item.revision for item in read_to(watch, client.revision)] == list(range(next_revision, client.revision + 1))


def test_a_message_that_is_lost_on_the_way_cannot_be_missed(daemon, client):
    with WatchRelay(daemon.grpc_address) as relay:
        for options in ({}, {"snapshot": True}):
            with pagoda.watch(relay.address, **options) as watch:
                if options:
                    read_snapshot(watch)
                before = watch.revision
                relay.loses = lambda message, gone=before + 1: message.events and message.previous_revision < gone <= message.revision
                cache(client, [before, 1, 2, 3])
                if not options:
                    gap = next(watch)
                    assert (gap.reason, gap.previous_revision) == ("MESSAGE_MISSING", before)
                    continue
                for _ in range(2):  # The error stays.
                    with pytest.raises(pagoda.PagodaError, match="MESSAGE_MISSING"):
                        next(watch)


def test_filters_show_what_was_asked_for_and_say_how_far_they_are(start_daemon):
    daemon = start_daemon(cache={"primary": 64, "secondary": 64})
    with pagoda.connect(daemon.grpc_address) as client:
        with client.watch(from_revision=1) as watch:
            for number in range(30):
                cache(client, [number] * 16)
            client.free_blocks(client.allocate_blocks(3))
            client.reset_prefix_cache()
            everything = read_to(watch, client.status().revision)
        secondary = pagoda.Tier.SECOND
        wanted = {
            "types": (dict(types=[pagoda.Removed, pagoda.Created]), lambda event: isinstance(event, pagoda.Removed | pagoda.Created)),
            "windows": (dict(windows=[0]), lambda event: True),
            "tiers": (dict(types=[pagoda.Updated], tiers=[secondary]),
                      lambda event: isinstance(event, pagoda.Updated) and secondary in event.tier),
        }
        assert any(wanted["tiers"][1](event) for event in everything), "blocks have changed their tier"
        for name, (options, is_shown) in wanted.items():
            with client.watch(from_revision=1, progress=True, **options) as watch:
                shown = [item for item in read_to(watch, everything[-1].revision) if not isinstance(item, pagoda.Progress)]
            assert shown == [event for event in everything if is_shown(event)], name
        with client.watch(types=[pagoda.Removed], progress=True) as watch:
            cache(client, range(4))
            assert read_to(watch, client.revision)[-1] == pagoda.Progress(client.epoch, client.revision)
        for refused in ({"windows": [128]}, {"tenant": "nobody"}):
            with pytest.raises(pagoda.NotFound):
                client.watch(**refused)


def test_a_tenants_events_can_be_asked_for(start_daemon):
    operator = "the-operators-own-token"
    tokens = {name: f"the-token-of-{name}-and-nobody-else" for name in ("alice", "bob")}
    daemon = start_daemon(operator_token=operator, secrets={f"{name}.tokens": token for name, token in tokens.items()},
                          tenants=[{"name": name, "tokens_file": f"{name}.tokens"} for name in tokens])
    for name, token in tokens.items():
        with pagoda.connect(daemon.grpc_address, token=token) as client:
            cache(client, range(9))
    with pagoda.watch(daemon.grpc_address, token=operator, snapshot=True, tenant="bob") as watch:
        tenants = [item.namespace.tenant for item in read_snapshot(watch) if isinstance(item, pagoda.Stored)]
        assert tenants and set(tenants) == {"bob"}


def test_a_filtered_watch_that_is_cut_goes_on_without_a_hole(daemon, client):
    with TcpProxy(daemon.grpc_address) as proxy:
        with pagoda.watch(proxy.address, from_revision=1, types=[pagoda.Removed], progress=True) as watch:
            seen = []
            for number in range(6):
                cache(client, [number] * 9)
                client.free_blocks(client.allocate_blocks(1))
                seen += read_to(watch, client.revision)
                assert proxy.cut() == 1
                client.free_blocks(client.allocate_blocks(1))  # While no stream is open.
            seen += read_to(watch, client.revision)
        removed = [item.revision for item in seen if isinstance(item, pagoda.Removed)]
        with client.watch(from_revision=1) as whole:
            assert removed == [item.revision for item in read_to(whole, client.revision) if isinstance(item, pagoda.Removed)]
        assert len(removed) == 12
