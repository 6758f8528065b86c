"""/metrics: it obeys promtool's rules, agrees with server/METRICS.md, and names no tenant that the
reader must not know."""

import collections
import pathlib
import re
import subprocess
import time

import grpc
import pytest
from cache_traffic import SECTIONS, TENANTS, TIERS_WITH_DISK, Traffic, other_machines
from pagoda_client import Client, handles
from pagoda_daemon import CALL_SECONDS
from prometheus_server import require
from pagoda.v1 import cache_pb2, engine_pb2, engine_pb2_grpc, events_pb2, events_pb2_grpc

ROOT = pathlib.Path(__file__).resolve().parents[3]
TINY_MODEL = ROOT / "tests" / "golden" / "qwen3_tiny"
HTTP = {"server": {"http_address": "127.0.0.1:0"}}
# Only a daemon whose engine can use a GPU has these metrics. gpu_metrics_test.cc tests them.
WITH_A_GPU = {"pagoda_engine_gpu_kernels", "pagoda_engine_gpu_kernel_seconds"}
SAMPLE = re.compile(r'(\w+)(?:\{(.*)\})? \S+')
LABEL = re.compile(r'(\w+)="(?:[^"\\]|\\.)*",?')


def families(text):
    """{family: (type, {its labels, without a histogram's "le"})}. Checks that every sample belongs
    to the family above it."""
    found = {}
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            assert name not in found, f"{name} comes twice"
            found[name] = (kind, set())
        elif not line.startswith("#"):
            sample, labels = SAMPLE.fullmatch(line).groups()
            assert re.fullmatch(name + ("(_bucket|_sum|_count)?" if kind == "histogram" else ""), sample), line
            found[name][1].update(label for label in LABEL.findall(labels or "") if label != "le")
    return found


def table():
    """The same, as server/METRICS.md lists them."""
    text = (ROOT / "server" / "METRICS.md").read_text()
    found = {}
    entry = r"^\* ((?:`\w+`,?\s+)+)\((gauge|counter|histogram)(?:; ([^)]*))?\):"
    for names, kind, labels in re.findall(entry, text, re.M):
        for name in re.findall(r"`(\w+)`", names):
            assert name not in found, f"{name} is in the list twice"
            found[name] = (kind, set(re.findall(r"`(\w+)`", labels)))
    return found


@pytest.fixture
def working(start_daemon):
    """A daemon with every part: a model, a disk, memory for clients' caches, a store and another
    daemon. Its traffic has reached the end of its first sessions."""
    daemon = start_daemon(**SECTIONS | HTTP | other_machines("daemons.tokens") | {
        "cache": {"tiers": TIERS_WITH_DISK, "tokens_per_block": 8},
        "engine": {"model_dir": str(TINY_MODEL)}, "memory": {"host": "64MiB"}})
    with Traffic(daemon) as traffic:
        daemon.wait_until(lambda _: traffic.rounds >= 2 or traffic.errors)
    return daemon


def test_names_and_labels_are_those_of_the_table_and_pass_promtool(working):
    status, text = working.http("/metrics")
    assert status == 200
    exported = families(text)
    documented = {name: family for name, family in table().items() if name not in WITH_A_GPU}
    assert exported.keys() == documented.keys(), exported.keys() ^ documented.keys()
    assert exported == documented, {name for name in exported if exported[name] != documented[name]}
    checked = subprocess.run([require("promtool"), "check", "metrics"], input=text, capture_output=True, text=True, timeout=60, check=False)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def test_the_engines_numbers_are_those_of_its_last_report(start_daemon):
    """Both programs have them, and the daemon says whether its engine is up."""
    daemon = start_daemon(**HTTP, cache={"layers": None, "primary": 256}, engine={"model_dir": str(TINY_MODEL)})
    stub = engine_pb2_grpc.EngineServiceStub(daemon.engine_channel)
    list(stub.Generate(engine_pb2.GenerateRequest(prompt_tokens=[1, 2, 3], max_new_tokens=5), timeout=CALL_SECONDS))
    assert daemon.engine_metric("generated_tokens_total") == 5
    daemon.wait_until(lambda _: value(daemon, "pagoda_engine_generated_tokens_total") == 5)
    status = daemon.status().engine
    assert (status.prompt_tokens, status.reused_tokens, status.generated_tokens) == (3, 0, 5)
    assert status.computed_tokens == daemon.engine_metric("computed_tokens_total") >= 3
    assert status.up and status.restarts == 0 and status.problem == ""
    assert status.addresses.http == daemon.engine_http_address
    assert list(status.addresses.grpc) == [f"unix:{daemon.config['engine']['unix_socket']}"]
    assert value(daemon, "pagoda_engine_up") == 1 and value(daemon, "pagoda_engine_restarts_total") == 0
    of_engine = families(daemon.engine_http("/metrics")[1])
    of_daemon = families(daemon.http("/metrics")[1])
    common = {name for name in of_engine if name.startswith(("pagoda_engine_", "pagoda_http_"))} - {"pagoda_engine_connected"}
    assert len(common) > 15 and {name: of_engine[name] for name in common} == {name: of_daemon[name] for name in common}


def test_no_sample_comes_twice(working):
    samples = [line.rsplit(" ", 1)[0] for line in working.http("/metrics")[1].splitlines() if not line.startswith("#")]
    assert [sample for sample, count in collections.Counter(samples).items() if count > 1] == []


def test_tenants_have_names_only_where_the_operator_wants_it(start_daemon):
    daemon = start_daemon(**SECTIONS | HTTP | {"metrics": {}})
    with Traffic(daemon) as traffic:
        daemon.wait_until(lambda _: traffic.rounds >= 2 or traffic.errors)
    text = daemon.metrics()
    assert "tenant=" not in text and not any(f'"{name}"' in text for name in TENANTS)
    assert re.search(r'^pagoda_prefix_lookup_tokens_total\{window="full"\} [1-9]', text, re.M)


def value(daemon, sample):
    (found,) = re.findall(rf"^{re.escape(sample)} (\S+)$", daemon.metrics(), re.M)
    return float(found)


def test_a_session_that_dies_is_told_from_one_that_says_goodbye(start_daemon):
    daemon = start_daemon(**HTTP)
    with Client(daemon.channel) as client:
        client.allocate(3)
    dying = Client(daemon.channel, lease_ms=300)
    dying.allocate(5)
    daemon.wait_until(lambda _: value(daemon, 'pagoda_sessions_ended_total{reason="lease_expired"}') == 1)
    assert value(daemon, 'pagoda_sessions_ended_total{reason="closed"}') == 1
    assert value(daemon, 'pagoda_reclaimed_blocks_total{cause="closed"}') == 3
    assert value(daemon, 'pagoda_reclaimed_blocks_total{cause="lease_expired"}') == 5


IDS = 60  # Block ids in an event.
LOG_EVENTS = 900  # Below the lag from which pagoda_event_subscribers_behind counts.


def watch(daemon, **fields):
    stream = events_pb2_grpc.EventServiceStub(daemon.connect()).Watch(events_pb2.WatchRequest(**fields))
    next(stream)
    return stream


def fall_behind(daemon):
    """Makes events until both subscribers are further behind than the log reaches. A single one
    would profit from messages that were encoded for the other."""
    with Client(daemon.channel) as client:
        deadline = time.monotonic() + 90
        while value(daemon, 'pagoda_event_subscribers_behind{events="1000"}') < 2:
            assert time.monotonic() < deadline
            # Two events of many ids each, because bytes fill a connection.
            results = client.execute(
                *[cache_pb2.Operation(allocate_blocks=cache_pb2.AllocateBlocksRequest(count=IDS))] * 16)
            for result in results:
                client.free(handles(result.allocate_blocks.blocks))


def test_subscribers_are_counted_by_how_they_go(start_daemon):
    daemon = start_daemon(**HTTP, cache={"primary": 16 * IDS}, events={"max_events": LOG_EVENTS})
    closed = 'pagoda_event_subscribers_closed_total{reason="%s"}'
    leaves = watch(daemon)
    stalls = watch(daemon)
    recovers = watch(daemon, snapshot=True, resnapshot_when_behind=True)
    assert value(daemon, "pagoda_event_subscribers") == 3
    assert value(daemon, 'pagoda_event_snapshots_total{reason="asked"}') == 1
    leaves.cancel()
    daemon.wait_until(lambda _: value(daemon, closed % "client") == 1)
    fall_behind(daemon)
    assert value(daemon, "pagoda_event_subscriber_max_lag_events") >= 1000
    with pytest.raises(grpc.RpcError) as failure:
        for _ in stalls:
            pass
    assert failure.value.code() == grpc.StatusCode.OUT_OF_RANGE
    daemon.wait_until(lambda _: value(daemon, closed % "behind") == 1)
    while value(daemon, 'pagoda_event_snapshots_total{reason="behind"}') == 0:
        next(recovers)
    recovers.cancel()
    daemon.wait_until(lambda _: value(daemon, closed % "client") == 2)
    assert value(daemon, "pagoda_event_subscribers") == 0
    assert value(daemon, "pagoda_event_subscribers_opened_total") == 3
    assert value(daemon, "pagoda_event_log_events") <= LOG_EVENTS
    assert value(daemon, "pagoda_event_revision") - value(daemon, "pagoda_event_oldest_revision") < LOG_EVENTS
