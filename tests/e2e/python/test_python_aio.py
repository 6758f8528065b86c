"""The Python package for asyncio: the same names, and the same that comes of them."""

import asyncio
import gc
import inspect
import re

import pagoda
import pagoda.aio
import pytest
from losing_daemon import LosingDaemon
from tcp_proxy import TcpProxy

pytestmark = pytest.mark.usefixtures("transport")

LEASE = 1.0


def public(kind):
    return {name for name in dir(kind) if not name.startswith("_")}


def parameters(function):
    """Names, kinds and defaults; not how the types are written."""
    return [(parameter.name, parameter.kind, parameter.default) for parameter in inspect.signature(function).parameters.values()]


@pytest.mark.parametrize("name", ["Client", "Sequence", "Batch", "Pin", "Watch"])
def test_both_kinds_have_the_same_names_and_parameters(name):
    one, other = getattr(pagoda, name), getattr(pagoda.aio, name)
    assert public(one) == public(other)
    for method in public(one):
        if inspect.isfunction(getattr(one, method)):
            assert parameters(getattr(one, method)) == parameters(getattr(other, method)), method
            assert getattr(other, method).__doc__, method


def test_both_kinds_are_opened_alike():
    for function in ("connect", "watch"):
        assert parameters(getattr(pagoda, function)) == parameters(getattr(pagoda.aio, function))


def story(test):
    """Runs a coroutine test in an event loop of its own; a task that it leaves behind fails it."""
    def run(daemon):
        async def whole():
            async with asyncio.timeout(60):
                await test(daemon)
            assert asyncio.all_tasks() == {asyncio.current_task()}

        asyncio.run(whole())

    run.__name__ = test.__name__
    return run


@story
async def test_a_sequence_lives_and_is_found_again(daemon):
    async with pagoda.aio.connect(f"unix:{daemon.unix_socket}", name="aio") as client:
        async with client.sequence(range(10)) as sequence:
            assert (sequence.matched_tokens, len(sequence.table)) == (0, 3)
            (pool,) = await client.pools()
            pool.writable_array[sequence.table.slots] = 2
            await sequence.commit(computed=10)
            assert await client.append_step([sequence], [10], computed=[10]) == {}
            async with sequence.fork() as child:
                await child.append([11, 12])
                await child.wait_ready()
                await child.truncate(11)
                assert (await child.describe()).token_count == 11
            assert (await sequence.query_capacity(8)).fits_to_completion
            await sequence.reserve(4)
        assert daemon.primary().active_blocks == 0
        again = await client.sequence(range(11))
        assert again.matched_tokens == 10
        await again.wait_ready()
        assert (pool.array[again.table.slots[:2]] == 2).all()
        await again.free()
        with pytest.raises(pagoda.NotFound):
            await again.append(1)
    assert daemon.status().sessions == 0


@story
async def test_prefixes_pins_and_blocks_are_handled(daemon):
    async with pagoda.aio.connect(f"unix:{daemon.unix_socket}") as client:
        async with client.sequence(range(8)) as sequence:
            await sequence.commit(computed=8)
        assert (await client.match(range(9))).matched_tokens == 8
        assert (await client.query_capacity(range(9))).fits_now
        async with client.pin(range(8), lease=60) as pin:
            assert [listed.pin_id for listed in (await client.list_pins()).pins] == [pin.pin_id]
        assert (await client.list_pins()).pins == ()
        moved = await client.offload(range(8))
        await client.wait(moved.ready_ticket)
        assert (await client.prefetch(range(8))).matched_tokens == 8
        assert await client.set_retention(range(8), [pagoda.Retention(80)]) == 2
        blocks = await client.allocate_blocks(2)
        await client.free_blocks(blocks)
        assert (await client.status()).windows[0].tiers[0].free_blocks == 62
        assert await client.invalidate(range(4)) == 2
        assert await client.reset_prefix_cache() == 0


@story
async def test_batches_and_steps_are_sent(daemon):
    async with pagoda.aio.connect(f"unix:{daemon.unix_socket}") as client:
        async with client.batch() as batch:
            sequence = batch.sequence(range(10))
            batch.commit(sequence, computed=10)
            child = batch.fork(sequence)
            batch.append(child, 7)
            blocks = batch.allocate_blocks(2)
        assert (sequence.computed_tokens, child.token_count, len(blocks.result())) == (10, 11, 2)
        with pytest.raises(pagoda.BatchFailed) as failure:
            async with client.batch(step=3) as batch:
                batch.free_blocks(blocks.result())
                batch.free_blocks(blocks.result())
        assert [error.reason for error in failure.value.exceptions] == ["DOUBLE_FREE"]
        assert daemon.primary().in_flight_blocks == 2
        await client.advance(step=4, completed_step=3)
        assert daemon.primary().in_flight_blocks == 0
        with pytest.raises(ZeroDivisionError):
            async with client.batch() as batch:
                batch.allocate_blocks(64)
                1 / 0
        many = await asyncio.gather(*(client.match([number] * 5) for number in range(50)))
        assert len(many) == 50


def keep_alives(daemon):
    return sum(int(count) for count in re.findall(r'^pagoda_grpc_requests_total\{.*KeepAlive.*\} (\d+)$', daemon.http("/metrics")[1], re.M))


def test_a_lease_is_kept_alive_past_its_length_and_not_by_who_is_gone(start_daemon):
    daemon = start_daemon(server={"http_address": "127.0.0.1:0"})

    @story
    async def whole(daemon):
        async with pagoda.aio.connect(daemon.grpc_address, lease=LEASE) as client, client.sequence(range(9)) as sequence:
            await asyncio.to_thread(daemon.wait_until, lambda daemon: keep_alives(daemon) >= 7)  # Three in each lease.
            assert (await sequence.describe()).token_count == 9
            assert client.session_error is None
        forgotten = await pagoda.aio.connect(daemon.grpc_address, lease=LEASE)
        await forgotten.allocate_blocks(3)
        del forgotten
        gc.collect()
        await asyncio.to_thread(daemon.wait_until, lambda daemon: daemon.status().sessions == 0)

    whole(daemon)


@story
async def test_a_session_that_is_gone_is_told_plainly(daemon):
    client = await pagoda.aio.connect(f"unix:{daemon.unix_socket}", lease=LEASE)
    daemon.kill()
    daemon.start()
    with pytest.raises(pagoda.SessionGone) as failure:
        await client.match([1])
    assert failure.value.reason == "UNKNOWN_SESSION"
    await client.close()
    with pytest.raises(pagoda.Unavailable):
        await pagoda.aio.connect("unix:/nowhere/pagodad.sock")


@story
async def test_a_loss_is_told_and_acknowledged(daemon):
    with LosingDaemon(f"unix:{daemon.unix_socket}") as losing:
        async with pagoda.aio.connect(losing.address) as client, client.sequence(range(10)) as sequence:
            await sequence.commit(computed=10)
            losing.lose(sequence.id, 4)
            with pytest.raises(pagoda.KvLost) as failure:
                await sequence.append(11, computed=10)
            with pytest.raises(pagoda.KvLost):
                await sequence.wait_ready()
            assert sequence.acknowledge(failure.value) == 4
            await sequence.append(11, computed=10)
            assert losing.declared == [0, 1]


@story
async def test_a_batch_whose_answer_is_lost_is_sent_again_and_run_once(daemon):
    with LosingDaemon(f"unix:{daemon.unix_socket}") as losing:
        async with pagoda.aio.connect(losing.address) as client, client.sequence(range(10)) as sequence:
            losing.swallowed = 2
            await sequence.append(range(20), computed=10)
            assert (await sequence.describe()).token_count == sequence.token_count == 30
            losing.swallowed = 1_000_000
            with pytest.raises(pagoda.Unavailable):
                await client.allocate_blocks(1)
            losing.swallowed = 0
            assert daemon.primary().active_blocks == len(sequence.table) + 1


@story
async def test_a_cut_stream_goes_on_and_a_new_daemon_is_a_gap(daemon):
    async def read_to(watch, revision):
        return [await anext(watch) for _ in range(revision - watch.revision)]

    async def cache(client, tokens):
        async with client.sequence(tokens) as sequence:
            await sequence.commit(computed=len(tokens))

    with TcpProxy(daemon.grpc_address) as proxy:
        local = f"unix:{daemon.unix_socket}"  # A restarted daemon has another port.
        async with pagoda.aio.connect(local) as client, pagoda.aio.watch(proxy.address, from_revision=1) as watch:
            seen = []
            for number in range(5):
                await cache(client, [number] * 4)
                seen += await read_to(watch, client.revision)
                assert proxy.cut() == 1
                await cache(client, [100 + number] * 4)
            seen += await read_to(watch, client.revision)
            assert [item.revision for item in seen] == list(range(1, client.revision + 1))
            daemon.kill()
            daemon.start()
            proxy.retarget(daemon.grpc_address)
            proxy.cut()
            gap = await anext(watch)
            assert (gap.reason, gap.previous_revision, gap.next_revision) == ("EPOCH_CHANGED", client.revision, 1)
            assert gap.epoch == daemon.status().epoch != client.epoch
            with pytest.raises(pagoda.WatchRefused):
                await client.watch(from_revision=1, epoch=client.epoch)


@story
async def test_closing_ends_an_iteration_that_waits(daemon):
    async with pagoda.aio.connect(f"unix:{daemon.unix_socket}") as client:
        watch = await client.watch()
        reading = asyncio.create_task(anext(watch, None))
        await asyncio.to_thread(daemon.wait_until, lambda daemon: daemon.status().subscribers == 1)
        assert not reading.done()
        await watch.close()
        assert await reading is None
        async for _ in watch:
            pytest.fail("a closed watch has no items")
        await asyncio.to_thread(daemon.wait_until, lambda daemon: daemon.status().subscribers == 0)


@story
async def test_a_watch_begins_with_its_first_item_too(daemon):
    async with pagoda.aio.connect(f"unix:{daemon.unix_socket}") as client:
        watch = client.watch(from_revision=1)
        async for item in watch:
            assert item.capacity == {pagoda.Tier.PRIMARY: 64}
            break
        await watch.close()


@story
async def test_a_late_joiner_has_a_snapshot_and_begins_anew_where_it_cannot_go_on(daemon):
    async def cache(client, tokens):
        async with client.sequence(tokens) as sequence:
            await sequence.commit(computed=len(tokens))

    async def follow(watch, mirror, revision):
        begins = []
        while not mirror.whole or watch.revision < revision:
            mirror.apply(item := await anext(watch))
            begins += [item.reason] if isinstance(item, pagoda.SnapshotBegin) else []
        return begins

    mirror = pagoda.Mirror(4)
    with TcpProxy(daemon.grpc_address) as proxy:
        local = f"unix:{daemon.unix_socket}"  # A restarted daemon has another port.
        async with pagoda.aio.watch(proxy.address, snapshot=True) as watch:
            async with pagoda.aio.connect(local) as client:
                await cache(client, range(9))
                assert await follow(watch, mirror, client.revision) == [""]
                proxy.cut()
                await cache(client, [7] * 9)
                assert await follow(watch, mirror, client.revision) == [], "the watch resumes, so there is no new snapshot"
            assert (mirror.match(range(9)).matched_tokens, mirror.match([7] * 9).matched_tokens) == (8, 8)
            before = {"from_revision": watch.revision + 1, "epoch": watch.epoch}
            daemon.kill()
            daemon.start()
            proxy.retarget(daemon.grpc_address)
            proxy.cut()
            assert (await anext(watch)).reason == "EPOCH_CHANGED"
        async with pagoda.aio.connect(local) as client, client.watch(resnapshot=True, **before) as watch:
            await cache(client, range(9))
            mirror = pagoda.Mirror(4)
            assert await follow(watch, mirror, client.revision) == ["EPOCH_CHANGED"]
            assert (mirror.whole, len(mirror)) == (True, 3)


@story
async def test_a_filtered_watch_says_how_far_it_is(daemon):
    async with pagoda.aio.connect(f"unix:{daemon.unix_socket}") as client:
        async with client.watch(types=[pagoda.Removed], progress=True) as watch, client.sequence(range(9)) as sequence:
            await sequence.commit(computed=9)
            while watch.revision < client.revision:
                assert isinstance(await anext(watch), pagoda.Progress)
        with pytest.raises(pagoda.NotFound):
            await client.watch(windows=[128])
