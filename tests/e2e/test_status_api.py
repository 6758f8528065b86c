"""The JSON behind the status page: what it says, to whom, and how it refuses."""

import json
import urllib.error
import urllib.request

import pytest
from cache_traffic import other_machines
from pagoda_client import Client, authorized
from pagoda_daemon import CALL_SECONDS, HTTP
from pagoda.v1 import events_pb2, events_pb2_grpc, prefixes_pb2

ON_LOOPBACK = {"http_address": "127.0.0.1:0"}
OPERATOR, ALICE, STRANGER = (f"token-of-{name}-0123456789" for name in ("the-operator", "alice", "a-stranger"))
FOR_ALL = ("status", "history", "transfers", "blocks")
FOR_OPERATORS = ("sessions", "tenants", "prefixes", "events", "subscribers")
SYSTEM = [*range(1000, 1016)]  # Four blocks of four tokens.


@pytest.fixture
def daemon(start_daemon):
    return start_daemon(server=ON_LOOPBACK)


def get(daemon, path, token=None, **headers):
    """The JSON of an answer that is one."""
    code, body = daemon.http_as(f"/api/v1/{path}", token, **headers)
    assert code == 200, body
    return json.loads(body)


def refusal(daemon, path, token=None, **headers):
    """(code, reason) of an error."""
    code, body = daemon.http_as(path, token, **headers)
    error = json.loads(body)["error"]
    assert error["message"]
    return code, error["reason"]


def head_of(daemon, path, method="GET"):
    """(code, headers) of an answer."""
    request = urllib.request.Request(f"http://{daemon.http_address}{path}", method=method)
    try:
        with HTTP.open(request, timeout=CALL_SECONDS) as reply:
            return reply.status, reply.headers
    except urllib.error.HTTPError as error:
        return error.code, error.headers


def eventually(daemon, ask, expected):
    """Waits until `ask()` gives it: an answer that took a scan may be half a second old."""
    daemon.wait_until(lambda _: ask() == expected, seconds=20)


def test_status_is_what_grpc_says(daemon):
    with Client(daemon.connect(), "engine-0") as client:
        client.cache(1, SYSTEM + [1])
        client.cache(2, SYSTEM + [2])
        client.allocate(3)
        said, truth = get(daemon, "status"), daemon.status()
        window, true_window = said["windows"][0], truth.windows[0]
        assert (said["version"], said["state"], said["epoch"]) == (truth.version, "serving", f"{truth.epoch:016x}")
        assert said["cache"] | {"name": truth.cache.name, "tokens_per_block": 4, "layers": 2} == said["cache"]
        assert abs(said["start_time"] - truth.start_time.ToNanoseconds() / 1e9) < 1e-3 and said["uptime_seconds"] > 0
        assert (window["window"], window["layers"], window["block_bytes"]) == ("full", 2, true_window.tiers[0].block_bytes)
        (tier,), (true_tier,) = window["tiers"], true_window.tiers
        for state in ("capacity", "free", "cached", "duplicate", "active", "pinned", "in_flight"):
            assert tier[f"{state}_blocks"] == getattr(true_tier, f"{state}_blocks"), state
        assert tier["active_blocks"] == 3
        by_priority = [(one.priority, one.blocks) for one in true_tier.cached_by_priority]
        assert by_priority == [(35, tier["cached_blocks"])]
        assert [(one["priority"], one["blocks"]) for one in tier["cached_by_priority"]] == by_priority
        totals = window["totals"]
        assert totals["lookup_tokens"] == true_window.prefix_lookup_tokens_total == 34
        assert totals["hit_tokens"] == true_window.prefix_hit_tokens_total == 16
        assert totals["allocated_blocks"] == true_window.allocated_blocks_total
        assert (said["sessions"], said["sequences"], said["subscribers"]) == (1, 0, 0)
        assert (said["revision"], said["oldest_revision"]) == (truth.revision, truth.oldest_revision)
        assert said["engine"] is None and said["gpu_self_test"] is None and said["access"] == "operator"


def test_the_map_has_a_square_for_each_block(daemon):
    with Client(daemon.connect()) as client:
        client.cache(1, SYSTEM + [1])
        client.allocate(2)
        free, cached, active = [1, 0, 0, 0, 0], [0, 1, 0, 0, 0], [0, 0, 1, 0, 0]
        expected = {"states": ["free", "cached", "active", "pinned", "in_flight"], "windows": [{"window": "full", "tiers": [
            {"blocks_per_cell": 1, "cells": [cached] * 5 + [active] * 2 + [free] * 57, "tier": "primary"}]}]}
        eventually(daemon, lambda: get(daemon, "blocks"), expected)


def test_prefixes_are_ranked_by_what_they_saved(daemon):
    short = [*range(2000, 2008)]
    with Client(daemon.connect()) as client:
        for sequence in range(1, 6):
            client.cache(sequence, SYSTEM + [sequence], namespace={"cache_salt": "s"})
        for sequence in range(6, 10):
            client.cache(sequence, short + [sequence])
        client.pin(short)

        def prefixes():
            return [(row["tokens"], row["hits"], row["saved_tokens"], row["first_tokens"], row["namespace"], row["pinned"], row["tenant"])
                    for row in get(daemon, "prefixes")["prefixes"]]
        eventually(daemon, prefixes, [(16, 4, 64, SYSTEM[:4], {"salt": "s"}, False, ""), (8, 3, 24, short[:4], {}, True, "")])
        row = get(daemon, "prefixes")["prefixes"][1]
        assert (row["tier"], row["priority"], len(row["hash"])) == ("primary", 35, 16)


def test_sessions_and_tenants(daemon):
    with Client(daemon.connect(), "a"), Client(daemon.connect(), "b", lease_ms=5000) as second, Client(daemon.connect(), "c"):
        second.add(1, SYSTEM)
        rows = get(daemon, "sessions")["sessions"]
        assert [(row["client"], row["sequences"], row["lease_seconds"]) for row in rows] == [("a", 0, 30), ("b", 1, 5), ("c", 0, 30)]
        assert 0 < rows[1]["lease_left_seconds"] <= 5
        page = get(daemon, "sessions?limit=2")
        assert [row["client"] for row in page["sessions"]] == ["a", "b"] and page["next"] == rows[2]["session"]
        rest = get(daemon, f"sessions?limit=2&from={page['next']}")
        assert [row["client"] for row in rest["sessions"]] == ["c"] and rest["next"] is None
        (default_tenant,) = get(daemon, "tenants")["tenants"]
        assert (default_tenant["tenant"], default_tenant["sessions"], default_tenant["sequences"]) == ("", 3, 1)
        assert default_tenant["use"] == [{"window": "full", "tier": "primary", "used_blocks": 4, "cached_blocks": 0, "quota_blocks": None}]


def test_the_tail_of_the_events(daemon):
    with Client(daemon.connect()) as client:
        client.cache(1, SYSTEM + [1])
        client.free(client.allocate(1))
        tail = get(daemon, "events")
        assert tail["epoch"] == f"{daemon.status().epoch:016x}" and (tail["oldest_revision"], tail["skipped"]) == (1, 0)
        assert [event["revision"] for event in tail["events"]] == [*range(1, tail["last_revision"] + 1)]
        assert [event["type"] for event in tail["events"]] == ["created", "stored", "stored", "created", "removed"]
        assert tail["events"][0]["capacity_blocks"] == {"primary": 64}
        assert (tail["events"][1]["blocks"], tail["events"][1]["tokens"], tail["events"][4]["reason"]) == (4, 16, "released")
        assert [event["revision"] for event in get(daemon, "events?limit=2")["events"]] == [4, 5]
        some = get(daemon, "events?since=1&limit=3")
        assert ([event["revision"] for event in some["events"]], some["skipped"]) == ([3, 4, 5], 1)
        for since in (5, 6, 1 << 63):
            assert get(daemon, f"events?since={since}")["events"] == []
        assert get(daemon, "events?limit=0")["events"] == []


def test_events_that_the_log_has_dropped_are_counted(start_daemon):
    daemon = start_daemon(server=ON_LOOPBACK, events={"max_events": 20})
    with Client(daemon.connect()) as client:
        for _ in range(40):
            client.free(client.allocate(1))
        tail = get(daemon, "events?limit=500")
        assert tail["oldest_revision"] > 50 and len(tail["events"]) == tail["last_revision"] - tail["oldest_revision"] + 1
        assert tail["skipped"] == tail["oldest_revision"] - 1


def test_subscribers_and_their_lag(daemon):
    watch = events_pb2_grpc.EventServiceStub(daemon.connect()).Watch(events_pb2.WatchRequest())
    next(watch)
    with Client(daemon.connect()) as client:
        client.cache(1, SYSTEM)
        for response in watch:
            if response.revision == daemon.status().revision:
                break
        (row,) = get(daemon, "subscribers")["subscribers"]
        assert not row["filtered"] and not row["snapshot"]
        assert (row["role"], row["tenant"], row["lag_events"], row["sent_revision"]) == ("operator", "", 0, daemon.status().revision)
        assert row["open_seconds"] >= 0
    watch.cancel()
    eventually(daemon, lambda: get(daemon, "subscribers")["subscribers"], [])


def test_a_filtered_subscriber_does_not_lag_for_what_it_does_not_see(start_daemon):
    daemon = start_daemon(server=ON_LOOPBACK, events={"progress_interval": "1m"})  # No progress mark arrives during the test.
    watch = events_pb2_grpc.EventServiceStub(daemon.connect()).Watch(
        events_pb2.WatchRequest(types=[events_pb2.EVENT_TYPE_STORED]))
    next(watch)
    with Client(daemon.connect()) as client:
        for _ in range(100):
            client.free(client.allocate(1))
        eventually(daemon, lambda: [(row["filtered"], row["lag_events"]) for row in get(daemon, "subscribers")["subscribers"]],
                   [(True, 0)])
    watch.cancel()


def test_transfers_and_history(start_daemon):
    daemon = start_daemon(cache={"primary": 8, "secondary": 16}, server=ON_LOOPBACK)
    with Client(daemon.connect()) as client:
        client.cache(1, SYSTEM)
        assert client.offload(SYSTEM) == 4
        ways = {(way["from"], way["to"]): way for way in get(daemon, "transfers")["directions"]}
        assert len(ways) == 4 and ways["primary", "secondary"]["copies"] == 4 and ways["secondary", "primary"]["copies"] == 0
        assert ways["primary", "secondary"]["bytes"] == 4 * daemon.status().windows[0].tiers[0].block_bytes
        eventually(daemon, lambda: get(daemon, "history")["offloaded_blocks"][-1], 4)
        history = get(daemon, "history")
        assert len({len(column) for name, column in history.items() if name not in ("interval_seconds", "used_blocks")}) == 1
        assert history["used_blocks"] == {"primary": history["used_primary_blocks"], "secondary": history["used_secondary_blocks"]}
        assert [tier["name"] for tier in get(daemon, "status")["cache"]["tiers"]] == ["primary", "secondary"]
        assert history["times"] == sorted(history["times"]) and history["used_secondary_blocks"][-1] == 4


def test_what_is_wrong_is_said_in_json(daemon):
    assert refusal(daemon, "/api/v1/events?since=-1") == refusal(daemon, "/api/v1/sessions?limit=x") == (400, "INVALID_ARGUMENT")
    assert refusal(daemon, "/api/v1/nothing") == refusal(daemon, "/api/v2/status") == (404, "NOT_FOUND")
    assert head_of(daemon, "/api/v1/status", "POST")[0] == head_of(daemon, "/api/v1/status", "OPTIONS")[0] == 405


def test_headers(daemon):
    code, page = head_of(daemon, "/")
    assert code == 200 and page["Content-Type"] == "text/html; charset=utf-8"
    policy = page["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "connect-src 'self'" in policy and "unsafe" not in policy and "*" not in policy
    for path in ("/", "/metrics", *(f"/api/v1/{name}" for name in FOR_ALL + FOR_OPERATORS)):
        code, headers = head_of(daemon, path)
        assert code == 200 and headers["X-Content-Type-Options"] == "nosniff" and headers["Cache-Control"] == "no-store"
        assert not [name for name in headers if name.lower().startswith("access-control")]


def test_on_loopback_another_name_reads_nothing(daemon):
    port = daemon.http_address.rpartition(":")[2]
    for name in FOR_ALL + FOR_OPERATORS:
        assert refusal(daemon, f"/api/v1/{name}", Host=f"evil.example:{port}") == (421, "FAILED_PRECONDITION")
        for host in ("localhost", f"localhost:{port}", f"127.0.0.1:{port}", f"[::1]:{port}", "[::1]", "LOCALHOST:1"):
            get(daemon, name, Host=host)
    for host in ("localhost.evil.example", "127.0.0.1.evil.example", "192.168.0.1", "127.0.0.1@evil", ":"):
        assert refusal(daemon, "/api/v1/status", Host=host)[0] == 421, host
        assert daemon.http_as("/metrics", None, Host=host)[0] == 421, host
    assert daemon.http_as("/metrics", None, Host=f"localhost:{port}")[0] == 200


def test_a_page_of_another_site_reads_nothing(daemon):
    for path in ("/metrics", *(f"/api/v1/{name}" for name in FOR_ALL + FOR_OPERATORS)):
        for origin in ("http://evil.example", "null", "http://localhost:1"):
            assert daemon.http_as(path, None, Origin=origin)[0] == 403, (path, origin)
        assert daemon.http_as(path, None, Origin=f"http://{daemon.http_address}")[0] == 200, path


@pytest.mark.parametrize("header", ["Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-IP"])
def test_without_operators_clients_of_a_proxy_are_told_nothing_of_tenants(daemon, header):
    for name in FOR_OPERATORS:
        assert refusal(daemon, f"/api/v1/{name}", **{header: "192.0.2.7"}) == (403, "PERMISSION_DENIED")
    for name in FOR_ALL:
        get(daemon, name, **{header: "192.0.2.7"})
    assert get(daemon, "status", **{header: "192.0.2.7"})["access"] == "refused"
    assert get(daemon, "status")["access"] == "operator"


def test_behind_a_proxy_tokens_count(start_daemon):
    daemon = start_daemon(operator_token=OPERATOR, server=ON_LOOPBACK)
    passed_on = {"X-Forwarded-For": "192.0.2.7", "Via": "1.1 proxy"}
    assert refusal(daemon, "/api/v1/sessions", **passed_on) == (401, "UNAUTHENTICATED")
    assert get(daemon, "sessions", OPERATOR, **passed_on)["sessions"] == []


def test_with_operators_tenants_are_theirs_to_see(start_daemon):
    daemon = start_daemon(operator_token=OPERATOR, secrets={"alice.tokens": ALICE}, server=ON_LOOPBACK,
                          tenants=[{"name": "alice", "tokens_file": "alice.tokens", "primary_blocks": 10}])
    with Client(authorized(daemon.connect(), ALICE), "engine-of-alice") as client:
        client.cache(1, SYSTEM)
        for name in FOR_OPERATORS:
            path = f"/api/v1/{name}"
            assert refusal(daemon, path) == refusal(daemon, path, STRANGER) == (401, "UNAUTHENTICATED"), name
            assert refusal(daemon, path, Authorization=f"Basic {OPERATOR}") == (401, "UNAUTHENTICATED")
            assert refusal(daemon, path, ALICE) == (403, "PERMISSION_DENIED"), name
            get(daemon, name, OPERATOR)
        assert head_of(daemon, "/api/v1/sessions")[1]["WWW-Authenticate"] == "Bearer"
        for name in FOR_ALL:
            assert "alice" not in json.dumps(get(daemon, name)), "it names no tenant"
        assert [get(daemon, "status", token)["access"] for token in (None, STRANGER, ALICE, OPERATOR)] == ["token", "token", "refused", "operator"]
        (row,) = get(daemon, "sessions", OPERATOR)["sessions"]
        assert (row["client"], row["tenant"]) == ("engine-of-alice", "alice")
        alice = get(daemon, "tenants", OPERATOR)["tenants"][1]
        assert alice["tenant"] == "alice" and alice["use"][0]["quota_blocks"] == 10 and alice["use"][0]["used_blocks"] == 4
        assert get(daemon, "events", OPERATOR)["events"][-1]["tenant"] == "alice"


def test_names_of_other_machines_and_their_errors_are_for_operators(start_daemon):
    daemon = start_daemon(operator_token=OPERATOR, server=ON_LOOPBACK, secrets={"daemons.tokens": "token-of-the-daemons"},
                          cache={"model": {"name": "org/tiny"}}, **other_machines("daemons.tokens"))
    with Client(authorized(daemon.connect(), OPERATOR)) as client:
        request = prefixes_pb2.FetchPrefixRequest(session=client.session, tokens=range(8))
        request.source.address = daemon.config["peers"]["address"]
        client.stub.FetchPrefix(request, timeout=CALL_SECONDS)
    for token in (None, OPERATOR):
        said = get(daemon, "status", token)
        store, (source,) = said["store"], said["peers"]["sources"]
        assert not store["up"] and source["up"] and said["exchange"]["totals"]["fetches"] == {"missing": 1}
        told = {"servers": "servers" in store, "last_error": "last_error" in store, "address": "address" in source,
                "source's error": "last_error" in source}
        assert set(told.values()) == {token == OPERATOR}, told
    assert store["servers"] == ["127.0.0.1:1"] and source["address"] == daemon.config["peers"]["address"]


def test_without_operators_other_machines_are_told_nothing_of_tenants(start_daemon):
    daemon = start_daemon(server={"http_address": "0.0.0.0:0", "http_insecure": True})
    daemon.http_address = f"127.0.0.1:{daemon.http_address.rpartition(':')[2]}"
    for name in FOR_OPERATORS:
        assert refusal(daemon, f"/api/v1/{name}") == (403, "PERMISSION_DENIED")
    for name in FOR_ALL:
        get(daemon, name, Host="pagoda.example:7071")
    assert get(daemon, "status")["access"] == "refused"
