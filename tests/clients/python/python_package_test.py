"""The Python package without a daemon: how it is built, what its README promises, and what it makes
of messages."""

import asyncio
import datetime
import inspect
import os
import pathlib
import re
import shutil
import subprocess
import sys
import zipfile

import grpc
import pagoda
import pagoda.aio
import pytest
from pagoda import _contract, _position, _watch, caches, errors, events

ROOT = pathlib.Path(__file__).resolve().parents[3]
FOLDER = ROOT / "clients" / "python"
README = (FOLDER / "README.md").read_text()


def test_the_version_is_the_projects():
    (version,) = re.findall(r"^project\(pagoda VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text(), re.M)
    assert pagoda.__version__ == version


def test_the_build_copies_every_file_of_the_package():
    (listed,) = re.findall(r"set\(PACKAGE\n(.*?)\)", (FOLDER / "CMakeLists.txt").read_text(), re.S)
    folder = FOLDER / "src" / "pagoda"
    there = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.suffix == ".py" or path.name == "py.typed"}
    assert sorted(listed.split()) == sorted(there)


def build(tmp_path, call):
    """Builds with the package's own backend in a copy of its sources; returns the file."""
    pytest.importorskip("setuptools")
    pytest.importorskip("wheel")
    copy = tmp_path / "clients" / "python"
    if not copy.exists():
        shutil.copytree(FOLDER, copy, ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"))
        shutil.copytree(ROOT / "proto", tmp_path / "proto")
    program = f"import sys; sys.path.insert(0, 'build_backend'); import backend; print(backend.{call}({str(tmp_path)!r}))"
    output = subprocess.run([sys.executable, "-c", program], cwd=copy, check=True, capture_output=True, text=True).stdout
    return tmp_path / output.splitlines()[-1]


def test_a_wheel_holds_the_whole_package_and_works(tmp_path):
    wheel = build(tmp_path, "build_wheel")
    assert wheel.name == f"pagoda-{pagoda.__version__}-py3-none-any.whl"
    names = set(zipfile.ZipFile(wheel).namelist())
    folder = FOLDER / "src"
    assert {str(path.relative_to(folder)) for path in folder.rglob("*.py")} <= names
    assert {"pagoda/py.typed", "pagoda/contract.binpb"} <= names
    program = "import pagoda.aio; print(pagoda.__file__, pagoda.Client.match.__name__)"
    output = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(wheel)}, check=True,
                            capture_output=True, text=True).stdout
    assert output.split() == [f"{wheel}/pagoda/__init__.py", "match"]


def test_a_source_distribution_needs_no_compiler(tmp_path):
    archive = build(tmp_path, "build_sdist")
    elsewhere = tmp_path / "far" / "away"  # From proto/.
    shutil.unpack_archive(archive, elsewhere)
    (source,) = elsewhere.iterdir()
    assert (source / "src" / "pagoda" / "contract.binpb").stat().st_size > 10000
    (tmp_path / "nothing").mkdir()
    program = f"import setuptools.build_meta; print(setuptools.build_meta.build_wheel({str(tmp_path)!r}))"
    output = subprocess.run([sys.executable, "-c", program], cwd=source, env={"PATH": str(tmp_path / "nothing")}, check=True,
                            capture_output=True, text=True).stdout
    assert "pagoda/contract.binpb" in zipfile.ZipFile(tmp_path / output.splitlines()[-1]).namelist()


@pytest.mark.parametrize("kind", ["Client", "Sequence", "Batch", "Pin", "Watch", "Mirror", "Pool", "DeviceArray", "SessionRef", "Table", "Pending",
                                  "PendingCall"])
def test_the_readme_names_everything_that_can_be_called(kind):
    tables = README.partition("## Every call")[2].partition("\n## Errors")[0]
    for name, member in inspect.getmembers(getattr(pagoda, kind)):
        if not name.startswith("_") and (inspect.isfunction(member) or isinstance(member, property)):
            assert re.search(rf"\b{name}\b", tables), f"{kind}.{name}"
            assert inspect.getdoc(member), f"{kind}.{name}"


def test_every_exported_name_is_there_and_typed():
    for name in pagoda.__all__:
        assert hasattr(pagoda, name), name
    for kind in (pagoda.Client, pagoda.Sequence, pagoda.Batch):
        for name, member in inspect.getmembers(kind, inspect.isfunction):
            if not name.startswith("_"):
                for parameter in list(inspect.signature(member).parameters.values())[1:]:
                    assert parameter.annotation is not inspect.Parameter.empty, f"{kind.__name__}.{name}({parameter.name})"


def test_every_reason_of_the_daemon_has_a_family():
    table = (ROOT / "server" / "ERRORS.md").read_text().partition("| reason | code | when |")[2].partition("\n\n")[0]
    reasons = [(reason, grpc.StatusCode[code.split()[0]] if code != "at the start only" else grpc.StatusCode.UNKNOWN)
               for cell, code in re.findall(r"^\| ([A-Z_, ]+) \| ([^|]+) \|", table, re.M) for reason in cell.split(", ")]
    assert len(reasons) > 30
    for reason, code in reasons:
        if reason == "KV_LOST":
            continue
        error = errors.make(errors.Details(code, "", reason))
        assert type(error) is not pagoda.PagodaError, reason
        family = next(row for row in README.splitlines() if row.startswith(f"| `{type(error).__name__}` |"))
        if "at the start only" not in table.partition(reason)[2].partition("\n")[0] and reason in README:
            assert reason in family, reason


def test_a_reason_of_a_later_daemon_takes_its_family_from_its_code():
    error = errors.make(errors.Details(grpc.StatusCode.RESOURCE_EXHAUSTED, "no", "TENANT_QUOTA_EXCEEDED"))
    assert isinstance(error, pagoda.Exhausted) and error.reason == "TENANT_QUOTA_EXCEEDED"
    assert type(errors.make(errors.Details(grpc.StatusCode.DATA_LOSS, "no", "SOMETHING_NEW"))) is pagoda.PagodaError


def test_a_value_of_a_later_daemon_is_kept_as_it_is():
    tier = pagoda.Tier(7)
    assert (tier, tier.name) == (7, "UNKNOWN_7") and tier not in (pagoda.Tier.PRIMARY, pagoda.Tier.SECOND)


def test_the_contract_clashes_with_no_other_of_the_process():
    from google.rpc import status_pb2
    from pagoda.v1 import cache_pb2

    assert cache_pb2.Batch is not _contract.v1.Batch
    raw = _contract.v1.Batch(step=7).SerializeToString()
    assert cache_pb2.Batch.FromString(raw).step == 7
    assert status_pb2.Status.DESCRIPTOR.full_name == _contract.rpc.Status.DESCRIPTOR.full_name


def test_a_pins_end_and_hidden_content_are_values():
    told = _contract.v1.WatchResponse(epoch=1, revision=2)
    ended = told.events.add(revision=1).updated
    ended.block_id, ended.ended_pin.pin_id, ended.ended_pin.why, ended.ended_pin.removal = 7, 3, 3, 6
    stored = told.events.add(revision=2).stored
    stored.content_hidden = True
    stored.blocks.add(block_id=8, block_hash=5, token_count=4)
    updated, hidden = events.take(told)
    assert updated.ended_pin == pagoda.EndedPin(3, pagoda.PinEnd.PREFIX_LEFT, pagoda.RemovalReason.CLEARED)
    assert updated.tier is None and updated.priority is None
    assert hidden.content_hidden and hidden.blocks[0].tokens == () and hidden.blocks[0].token_count == 4


def message(epoch, previous, *revisions):
    """A WatchResponse that tells of raw blocks taken."""
    told = _contract.v1.WatchResponse(epoch=epoch, previous_revision=previous, revision=revisions[-1] if revisions else previous)
    for revision in revisions:
        event = told.events.add(revision=revision)
        event.time.FromJsonString("2026-01-02T03:04:05.000006Z")
        event.created.block_ids.append(revision)
    return told


def standing(**wanted):
    """Where a stream stands that was asked for so and is opened."""
    position = _position.StreamPosition(_position.Wanted(**wanted))
    position.request()
    return position


def test_a_stream_without_a_hole_has_no_gap():
    position = standing()
    assert not position.request().HasField("from_revision")
    assert position.accept(message(9, 4)) == []
    (event,) = position.accept(message(9, 4, 5))
    assert event == pagoda.Created(9, 5, datetime.datetime(2026, 1, 2, 3, 4, 5, 6, datetime.timezone.utc), 0, {}, (5,))
    assert position.accept(message(9, 5)) == []
    assert (position.request().from_revision, position.request().epoch) == (6, 9)


@pytest.mark.parametrize("reason, epoch, previous", [("MESSAGE_MISSING", 9, 6), ("MESSAGE_MISSING", 9, 3), ("EPOCH_CHANGED", 8, 5)])
def test_a_message_that_does_not_go_on_is_a_gap(reason, epoch, previous):
    position = standing(from_revision=5)
    position.accept(message(9, 4, 5))
    gap, event = position.accept(message(epoch, previous, previous + 1))
    assert gap == pagoda.Gap(reason, previous_epoch=9, previous_revision=5, epoch=epoch, next_revision=previous + 1)
    assert (event.revision, position.revision) == (previous + 1, previous + 1)
    assert position.accept(message(epoch, previous + 1)) == []


def test_a_first_message_from_elsewhere_is_a_gap():
    (gap,) = standing(from_revision=5, epoch=9).accept(message(9, 6))
    assert (gap.reason, gap.previous_revision, gap.next_revision) == ("MESSAGE_MISSING", 4, 7)


def test_what_was_refused_is_asked_for_from_the_oldest_on():
    position = standing(from_revision=5, epoch=9)
    position.accept(message(9, 4, 5))
    position.refuse(pagoda.WatchRefused(errors.Details(grpc.StatusCode.OUT_OF_RANGE, "", "REVISION_COMPACTED", {"oldest_revision": "40"})))
    assert (position.request().from_revision, position.request().epoch) == (40, 0)
    (gap,) = position.accept(message(9, 39))
    assert gap == pagoda.Gap("REVISION_COMPACTED", 9, 5, 9, 40)
    assert position.request().epoch == 9


def snapshot(epoch, revision, **marks):
    """A WatchResponse of a snapshot."""
    return _contract.v1.WatchResponse(epoch=epoch, previous_revision=revision, revision=revision, **marks)


def test_a_snapshot_that_does_not_come_to_its_end_is_asked_for_again():
    position = standing(snapshot=True)
    assert position.accept(snapshot(9, 4, snapshot_begin=True)) == [pagoda.SnapshotBegin(9, "")]
    position.broke()
    request = position.request()
    assert (request.snapshot, request.HasField("from_revision"), request.epoch) == (True, False, 0)
    assert position.accept(snapshot(8, 2, snapshot_begin=True)) == [pagoda.SnapshotBegin(8, "STREAM_BROKEN")]
    assert position.accept(snapshot(8, 2, snapshot_end=True)) == [pagoda.SnapshotEnd(8, 2)]
    position.broke()
    request = position.request()
    assert (request.snapshot, request.from_revision, request.epoch, request.resnapshot_when_behind) == (False, 3, 8, True)
    # Meanwhile the log has dropped events that the reader needs.
    assert position.accept(message(8, 2)) == []
    assert position.accept(snapshot(8, 70, snapshot_begin=True)) == [pagoda.SnapshotBegin(8, "REVISION_COMPACTED")]


@pytest.mark.parametrize("told", [message(9, 4), message(9, 0), message(7, 4)])
def test_a_hole_where_snapshots_are_wanted_is_the_daemons_fault(told):
    position = standing(resnapshot=True)
    assert position.accept(message(9, 2)) == []
    with pytest.raises(pagoda.PagodaError) as failure:
        position.accept(told)
    assert failure.value.code is grpc.StatusCode.DATA_LOSS
    assert failure.value.reason == ("MESSAGE_MISSING" if told.epoch == 9 else "EPOCH_CHANGED")


def test_a_stream_that_was_to_begin_with_a_snapshot_does():
    with pytest.raises(pagoda.PagodaError, match="MESSAGE_MISSING|EPOCH_CHANGED"):
        standing(snapshot=True).accept(message(9, 4))


class FakeCalls:
    """A daemon whose cache has a tier on disk. It keeps the requests, and answers what the test
    sets."""

    def __init__(self, *results):
        self.asked, self.results = [], list(results)
        self.keep_alive = self.close_session = lambda request, **options: None

    def execute(self, request, timeout):
        assert timeout > 0
        self.asked += request.batch.operations
        return _contract.v1.ExecuteResponse(result=self.results.pop(0))

    @staticmethod
    def opened():
        told = _contract.v1.OpenSessionResponse(lease_ms=1000_000)
        told.cache.tokens_per_block = 4
        told.cache.windows.add(blocks=[8, 8, 8])
        for place, (name, medium) in enumerate([("hbm", 1), ("dram", 2), ("nvme", 3)], 1):
            told.cache.tiers.add(tier=place, name=name, medium=medium)
        return told


class FakeAioCalls(FakeCalls):
    async def _nothing(self, request, **options):
        return None

    def __init__(self, *results):
        super().__init__(*results)
        self.keep_alive = self.close_session = self._nothing

    async def execute(self, request, timeout):  # pylint: disable=invalid-overridden-method
        return super().execute(request, timeout)


class FakeChannel:
    def close(self, *grace):
        """There is nothing."""


class FakeAioChannel:
    async def close(self, *grace):
        """There is nothing."""


def answer(completed=(0, 0, 0), **result):
    """A BatchResult of one result, or of the error WAIT_TIMEOUT."""
    told = _contract.v1.BatchResult(completed_ticket=completed[0], completed_fetch_ticket=completed[1], completed_backup_ticket=completed[2])
    one = told.results.add(**result)
    if not result:
        one.error.code = grpc.StatusCode.DEADLINE_EXCEEDED.value[0]
        one.error.details.add().Pack(_contract.rpc.ErrorInfo(domain="pagoda", reason="WAIT_TIMEOUT"))
    return told


def run(work, *results):
    """The results of `work` with the synchronous and the asynchronous client, in a list, and the
    requests to the daemon. Both clients must give the same."""
    calls = FakeCalls(*results)
    with pagoda.Client(FakeChannel(), calls, calls.opened(), 10) as client:
        done = [step(client) for step in work]
    aio_calls = FakeAioCalls(*results)

    async def run_aio():
        async with pagoda.aio.Client(FakeAioChannel(), aio_calls, aio_calls.opened(), 10) as client:
            outcomes = []
            for step in work:
                outcome = step(client)
                outcomes.append(await outcome if inspect.isawaitable(outcome) else outcome)
            return outcomes

    assert repr(asyncio.run(run_aio())) == repr(done)
    assert aio_calls.asked == calls.asked and not calls.results and not aio_calls.results
    return done, calls.asked


def test_a_match_tells_the_tokens_of_each_tier_by_its_name():
    (found,), (asked,) = run([lambda client: client.match(range(9))],
                             answer(match_prefix={"matched_tokens": 4, "cached_tokens": 8, "tokens_by_tier": [4, 0, 4]}))
    assert (found.matched_tokens, found.cached_tokens) == (4, 8)
    assert list(found.tokens_by_tier.items()) == [("hbm", 4), ("dram", 0), ("nvme", 4)]
    assert asked.match_prefix.tokens == list(range(9))


def test_a_match_of_an_older_daemon_tells_no_tiers():
    (found,), _ = run([lambda client: client.match(range(9))], answer(match_prefix={"matched_tokens": 4}))
    assert (found.matched_tokens, found.cached_tokens, found.tokens_by_tier) == (4, 0, {})


def test_a_prefetch_says_its_target_and_deadline_and_its_fetch_is_waited_for():
    lane = pagoda.Lane.FETCH
    told = {"matched_tokens": 8, "blocks": 1, "ready_ticket": 3, "fetched_blocks": 2, "fetch_ticket": 7}
    (coming, _, completed, _), asked = run(
        [lambda client: client.prefetch([1], target=pagoda.PrefetchTarget.MEMORY, deadline=1.5),
         lambda client: client.wait(7, lane=lane), lambda client: dict(client.completed_tickets), lambda client: client.wait(6, lane=lane)],
        answer(prefetch_prefix=told, completed=(9, 5, 1)), answer(completed=(9, 6, 1)),
        answer(wait_for_ticket={"completed_ticket": 7}, completed=(9, 7, 1)))
    assert coming == pagoda.Prefetched(blocks=1, ready_ticket=3, matched_tokens=8, fetched_blocks=2, fetch_ticket=7)
    assert completed == {pagoda.Lane.MEMORY: 9, pagoda.Lane.FETCH: 7, pagoda.Lane.BACKUP: 1}
    prefetch, *waits = asked
    assert (prefetch.prefetch_prefix.target, prefetch.prefetch_prefix.deadline_ms) == (2, 1500)
    assert [(wait.wait_for_ticket.ticket, wait.wait_for_ticket.lane) for wait in waits] == [(7, 1), (7, 1)], "ticket 6 is complete, so no call waits for it"


def test_what_is_the_default_is_not_said():
    _, (prefetch, wait) = run([lambda client: client.prefetch([1]), lambda client: client.wait(3)],
                              answer(prefetch_prefix={"ready_ticket": 3}, completed=(0, 9, 9)),
                              answer(wait_for_ticket={"completed_ticket": 3}, completed=(3, 9, 9)))
    assert prefetch.prefetch_prefix == _contract.v1.PrefetchPrefixRequest(tokens=[1])
    assert wait.wait_for_ticket == _contract.v1.WaitForTicketRequest(ticket=3)


def test_an_invalidation_is_durable_when_its_ticket_is_done():
    (removed, _, memory), asked = run(
        [lambda client: client.invalidate([1, 2]), lambda client: client.wait(4, lane=pagoda.Lane.BACKUP),
         lambda client: client.completed_ticket],
        answer(invalidate_prefix={"removed_blocks": 3, "durable_ticket": 4}),
        answer(wait_for_ticket={"completed_ticket": 4}, completed=(2, 0, 4)))
    assert removed == 3 and isinstance(removed, int) and removed.durable_ticket == 4
    assert memory == 2
    assert asked[1].wait_for_ticket.lane == 2


def test_a_batch_may_wait_in_a_lane():
    calls = FakeCalls(answer(wait_for_ticket={"completed_ticket": 5}))
    with pagoda.Client(FakeChannel(), calls, calls.opened(), 10) as client:
        with client.batch() as batch:
            waited = batch.wait_for_ticket(5, lane=pagoda.Lane.BACKUP)
        assert waited.result() == 5
    assert calls.asked[0].wait_for_ticket.lane == 2


def test_a_sequence_tells_what_lies_on_disk():
    added = {"matched_tokens": 4, "matched_below_tokens": 8, "tables": [{"blocks": bytes(12)}]}
    calls = FakeCalls(answer(add_sequence=added), answer(fork_sequence={"token_count": 12}), answer(free_sequence={}), answer(free_sequence={}))
    with pagoda.Client(FakeChannel(), calls, calls.opened(), 10) as client:
        with client.sequence(range(12)) as sequence, sequence.fork() as fork:
            assert (sequence.matched_tokens, sequence.matched_below_tokens) == (4, 8)
            assert fork.matched_below_tokens == 8


@pytest.mark.parametrize("windows", [(0,), (0, 128)])
def test_the_table_of_several_windows_is_refused_with_a_way_on(windows):
    tables = [{"window_size": size, "blocks": bytes(12)} for size in windows]
    calls = FakeCalls(answer(add_sequence={"tables": tables}), answer(free_sequence={}))
    with pagoda.Client(FakeChannel(), calls, calls.opened(), 10) as client, client.sequence(range(4)) as sequence:
        assert list(sequence.tables) == list(windows)
        if len(windows) == 1:
            assert sequence.table is sequence.tables[0]
        else:
            with pytest.raises(ValueError, match="^this sequence has 2 windows; use tables$"):
                sequence.table


def test_a_pin_shows_its_id_tokens_and_blocks():
    (pin,), _ = run([lambda client: client.pin(range(9))], answer(pin_prefix={"pin_id": 3, "pinned_tokens": 8, "blocks": 2}))
    assert repr(pin) == "Pin(pin_id=3, pinned_tokens=8, blocks=2)"


def test_the_help_of_status_names_the_call_for_engines():
    for kind in (pagoda.Client, pagoda.aio.Client):
        text = inspect.getdoc(kind.status)
        assert "operators" in text and "query_capacity" in text


@pytest.mark.parametrize("size, told", [(4096, {"bytes": 4096}), ("100B", {"bytes": 100}), ("64KiB", {"bytes": 65536}), ("8GiB", {"bytes": 8 << 30}), ("8GB", {"bytes": 8_000_000_000}), ("8 GiB", {"bytes": 8 << 30}), ("1.5TB", {"bytes": 1_500_000_000_000}), ("0.0001KiB", {"bytes": 1}),
                                        ("50%", {"free_permille": 500}), ("12.5%", {"free_permille": 125}), ("100%", {"free_permille": 1000}),
                                        ("0.1%", {"free_permille": 1})])
def test_a_size_is_bytes_or_a_share(size, told):
    assert caches.tier_size(pagoda.Medium.HOST, size) == _contract.v1.TierSize(medium=2, **told)


@pytest.mark.parametrize("size", [0, -1, "", "8", "8gb", "8  GiB", "1.5B", "1.GiB", ".5GiB", "-1GiB", "0B", "0%", "0.0%", "100.1%", "101%", "1.25%", ".5%", "50 %", "half"])
def test_what_is_no_size_is_refused(size):
    with pytest.raises(ValueError):
        caches.tier_size(pagoda.Medium.HOST, size)


IDENTITY = pagoda.CacheIdentity("org/tiny", "r1", "bfloat16", "NHD", "flash-1")
LAYERS = (pagoda.Layers(30, num_kv_heads=8, head_dim=128, dtype="bfloat16", window=4096),
          pagoda.Layers.key_only(2, head_dim=576, dtype="float16"), pagoda.Layers.opaque(24, bytes_per_block=65536, window=7))


class FakeCaches:
    """Stands for the calls of a channel: keeps the requests of open_cache, list_caches and
    drop_cache, and answers with one cache."""

    def __init__(self, channel, metadata=()):
        self.asked = channel.asked

    def open_cache(self, request, timeout):
        self.asked.append((request, timeout))
        told = _contract.v1.OpenCacheResponse(created=True, epoch=9)
        told.cache.name = request.name
        told.cache.tokens_per_block = request.tokens_per_block
        return told

    def list_caches(self, request, timeout):
        self.asked.append((request, timeout))
        told = _contract.v1.ListCachesResponse()
        own = told.caches.add(epoch=1, has_engine=True)
        own.cache.name = "own"
        own.engine_addresses.MergeFrom(_contract.v1.CacheEngine(grpc=["unix:/run/engine.sock", "127.0.0.1:7074"], http="127.0.0.1:7076"))
        row = told.caches.add(epoch=9, tenant="team-a", sessions=2, identity=IDENTITY.message(), layers=[group.message() for group in LAYERS])
        row.cache.name = "tiny"
        row.tiers.add(name="host", medium=2, bytes=1024, capacity_blocks=8, used_blocks=3)
        row.opened.FromJsonString("2026-01-02T03:04:05Z")
        row.unused.FromJsonString("1.5s")
        row.ends_in.FromJsonString("0s")
        told.budgets.add(medium=3, bytes=100, free_bytes=40)
        return told

    def drop_cache(self, request, timeout):
        self.asked.append((request, timeout))
        return _contract.v1.DropCacheResponse(ended_sessions=4)


class FakeAioCaches(FakeCaches):
    async def open_cache(self, request, timeout):  # pylint: disable=invalid-overridden-method
        return super().open_cache(request, timeout)

    async def list_caches(self, request, timeout):  # pylint: disable=invalid-overridden-method
        return super().list_caches(request, timeout)

    async def drop_cache(self, request, timeout):  # pylint: disable=invalid-overridden-method
        return super().drop_cache(request, timeout)


def ask(monkeypatch, name, *args, **options):
    """The result of this function of pagoda and of pagoda.aio, which must be the same, and the
    requests of both."""
    asked = {}
    for module, channel, calls in ((pagoda, FakeChannel, FakeCaches), (pagoda.aio, FakeAioChannel, FakeAioCaches)):
        made = channel()
        made.asked = asked[module] = []
        monkeypatch.setattr(module.client, "Calls", calls)
        monkeypatch.setattr(module.client.Credentials, "channel", lambda self, endpoint, make, made=made: made)
        done = getattr(module, name)(*args, **options)
        if inspect.isawaitable(done):
            async def result(coming=done):
                return await coming

            assert asyncio.run(result()) == first
        else:
            first = done
    assert asked[pagoda] == asked[pagoda.aio]
    ((request, timeout),) = asked[pagoda]
    return first, request, timeout


def test_a_cache_is_opened_as_it_is_asked_for(monkeypatch):
    opened, request, timeout = ask(monkeypatch, "open_cache", "unix:/nowhere", "tiny", identity=IDENTITY, layers=LAYERS, tokens_per_block=16,
                                   host="50%", gpu=4096, disk="1GiB", eviction_policy="lru", tenant="team-a", timeout=3)
    assert (opened.cache.name, opened.cache.tokens_per_block, opened.created, opened.epoch, timeout) == ("tiny", 16, True, 9, 3)
    v1 = _contract.v1
    assert request == v1.OpenCacheRequest(
        name="tiny", tokens_per_block=16, eviction_policy="lru", tenant="team-a",
        identity=v1.CacheIdentity(model="org/tiny", revision="r1", dtype="bfloat16", layout="NHD", kernel_packing="flash-1"),
        layers=[v1.LayerGroup(count=30, window_size=4096, kind=1, num_kv_heads=8, head_dim=128, dtype=3),
                v1.LayerGroup(count=2, kind=2, num_kv_heads=1, head_dim=576, dtype=2),
                v1.LayerGroup(count=24, window_size=7, kind=3, bytes_per_block=65536)],
        tiers=[v1.TierSize(medium=1, bytes=4096), v1.TierSize(medium=2, free_permille=500), v1.TierSize(medium=3, bytes=1 << 30)])


def test_a_cache_without_sizes_leaves_them_to_the_daemon(monkeypatch):
    _, request, _ = ask(monkeypatch, "open_cache", None, "tiny", identity=IDENTITY, layers=LAYERS, tokens_per_block=16)
    assert not request.tiers


def test_a_dtype_that_is_none_is_refused_by_name():
    with pytest.raises(ValueError, match="unknown dtype 'int3'; the dtypes are float32, float16, bfloat16"):
        pagoda.Layers(1, num_kv_heads=1, head_dim=1, dtype="int3").message()


def test_caches_are_listed_and_dropped(monkeypatch):
    found, _, _ = ask(monkeypatch, "list_caches", "unix:/nowhere")
    own, tiny = found
    assert len(found) == 2 and (own.name, own.identity, own.unused, own.has_engine) == ("own", None, None, True)
    assert own.engine_addresses == pagoda.EngineAddresses(("unix:/run/engine.sock", "127.0.0.1:7074"), "127.0.0.1:7076")
    assert not tiny.has_engine and tiny.engine_addresses is None
    assert caches.ServedCache.take(_contract.v1.CacheRow(has_engine=True)).engine_addresses == pagoda.EngineAddresses((), "")
    assert (tiny.name, tiny.identity, tiny.layers, tiny.epoch, tiny.tenant, tiny.sessions) == ("tiny", IDENTITY, LAYERS, 9, "team-a", 2)
    assert (tiny.unused, tiny.ends_in) == (1.5, 0.0) and tiny.opened.second == 5
    assert tiny.tiers == (caches.CacheTier("host", pagoda.Medium.HOST, 1024, 8, 3),)
    assert found.budgets == (pagoda.Budget(pagoda.Medium.DISK, 100, 40),)
    ended, request, _ = ask(monkeypatch, "drop_cache", "unix:/nowhere", "tiny", force=True)
    assert ended == 4 and request == _contract.v1.DropCacheRequest(name="tiny", force=True)
    _, request, _ = ask(monkeypatch, "drop_cache", "unix:/nowhere", "tiny")
    assert not request.force


def test_what_a_client_asks_of_the_daemon_is_about_its_own_cache():
    named = []

    def answered(response):
        def call(request, timeout):
            named.append(request.cache)
            return response
        return call

    calls = FakeCalls()
    calls.get_status = answered(_contract.v1.GetStatusResponse())
    calls.reset_prefix_cache = answered(_contract.v1.ResetPrefixCacheResponse(removed_blocks=3))
    calls.watch = lambda request: (named.append(request.cache), iter([message(9, 4)]))[1]
    opened = calls.opened()
    opened.cache.name = "tiny"
    with pagoda.Client(FakeChannel(), calls, opened, 10) as client:
        client.status()
        assert client.reset_prefix_cache() == 3
        client.watch()
    assert named == ["tiny"] * 3


def test_a_watch_of_hashes_asks_for_them_and_has_nothing_else():
    v1 = _contract.v1
    request = _watch.reading(content="hashes", chunk_tokens=256).position.request()
    assert (request.content, request.chunk_tokens) == (2, 256)
    request = _watch.reading().position.request()
    assert (request.content, request.chunk_tokens) == (1, 0)
    with pytest.raises(ValueError, match="'tokens' or 'hashes'"):
        _watch.reading(content="ids")

    told = v1.WatchResponse(epoch=9, revision=3)
    told.events.add(revision=1).stored.blocks.add(block_hash=7, tier=1, lower_tiers=[2])
    told.events.add(revision=2).updated.MergeFrom(v1.UpdatedEvent(block_hash=7, tier=v1.TierChange(old_value=1, new_value=2)))
    told.events.add(revision=3).removed.MergeFrom(v1.RemovedEvent(reason=1, block_hashes=[7]))
    stored, updated, removed = pagoda.events.take(told)
    block = stored.blocks[0]
    assert (block.block_hash, block.tier, block.lower_tiers) == (7, pagoda.Tier.PRIMARY, (pagoda.Tier.SECOND,))
    assert (block.block_id, block.tokens, block.priority, block.token_count) == (0, (), 0, 0)
    assert (stored.parent_hash, stored.parent_block_id, stored.namespace) == (None, None, pagoda.Namespace())
    assert (updated.block_hash, updated.tier) == (7, (pagoda.Tier.PRIMARY, pagoda.Tier.SECOND))
    assert (removed.block_hashes, removed.block_ids) == ((7,), ())


def test_a_watch_names_its_cache_over_broken_connections_too():
    reader = _watch.reading().of_cache("tiny")
    assert reader.position.request().cache == "tiny"
    reader.accept(message(9, 4))
    assert (reader.position.request().cache, reader.position.request().from_revision) == ("tiny", 5)
    assert _watch.reading().of_cache(None).position.request().cache == ""


@pytest.mark.parametrize("name", sorted(set(pagoda.aio.__all__) & {"connect", "drop_cache", "list_caches", "open_cache", "watch"}))
def test_the_functions_of_both_kinds_take_the_same(name):
    of, of_aio = (inspect.signature(getattr(module, name)).parameters for module in (pagoda, pagoda.aio))
    assert [(one.name, one.kind, one.default) for one in of_aio.values()] == [(one.name, one.kind, one.default) for one in of.values()]
    assert ("cache" in of) == (name in ("connect", "watch"))


def test_a_missing_extension_is_a_warning():
    program = "import sys; sys.modules['pagoda._native'] = None; import pagoda; pagoda.connect"

    def said(**environment):
        return subprocess.run([sys.executable, "-c", program], env=os.environ | environment, check=True, capture_output=True, text=True).stderr

    assert said(PAGODA_NATIVE="auto").startswith("pagoda runs without its native extension")
    assert said(PAGODA_NATIVE="0") == ""


def test_the_reasons_of_caches_have_families():
    families = {"UNKNOWN_CACHE": pagoda.NotFound, "CACHE_NOT_NAMED": pagoda.Conflict, "CACHE_MISMATCH": pagoda.Conflict,
                "CACHE_IN_USE": pagoda.Conflict, "TOO_MANY_CACHES": pagoda.Exhausted, "OUT_OF_MEMORY": pagoda.Exhausted}
    for reason, family in families.items():
        assert type(errors.make(errors.Details(grpc.StatusCode.UNKNOWN, "", reason))) is family, reason
        (row,) = [row for row in README.splitlines() if row.startswith(f"| `{family.__name__}` |")]
        assert reason in row, reason
