"""The JSON behind the status page: what it says, to whom, and how it refuses."""

import json
import urllib.error
import urllib.request

import pytest
from cache_traffic import other_machines
from pagoda_client import Client, authorized
from pagoda_daemon import CALL_SECONDS, HTTP
from pagoda.v1 import admin_pb2, caches_pb2, events_pb2, events_pb2_grpc, prefixes_pb2, status_pb2, types_pb2

ON_LOOPBACK = {"http_address": "127.0.0.1:0"}
OPERATOR, ALICE, STRANGER = (f"token-of-{name}-0123456789" for name in ("the-operator", "alice", "a-stranger"))
# The message of each answer.
FOR_ALL = {"caches": caches_pb2.ListCachesResponse, "status": admin_pb2.GetStatusResponse, "history": status_pb2.StatusHistory,
           "transfers": admin_pb2.TransferStatus, "blocks": status_pb2.BlockMap, "hit_rate_curve": admin_pb2.GetHitRateCurveResponse}
FOR_OPERATORS = {"sessions": admin_pb2.ListSessionsResponse, "tenants": admin_pb2.ListTenantsResponse,
                 "prefixes": status_pb2.TopPrefixes, "events": status_pb2.EventTail, "subscribers": status_pb2.SubscriberList}
ANSWERS = FOR_ALL | FOR_OPERATORS
SYSTEM = [*range(1000, 1016)]  # Four blocks of four tokens.


@pytest.fixture
def daemon(start_daemon):
    return start_daemon(server=ON_LOOPBACK)


def get(daemon, path, token=None, **headers):
    """The message of an answer."""
    return daemon.told(path, ANSWERS[path.partition("?")[0]](), token, **headers)


def text(daemon, path, token=None, **headers):
    """The JSON of an answer, as sent."""
    code, body = daemon.http_as(f"/api/v1/{path}", token, **headers)
    assert code == 200, body
    return body


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
    """Waits until `ask()` gives it: an answer that is shared may be half a second old."""
    daemon.wait_until(lambda _: ask() == expected, seconds=20)


def test_status_is_what_grpc_says(daemon):
    with Client(daemon.connect(), "engine-0") as client:
        client.cache(1, SYSTEM + [1])
        client.cache(2, SYSTEM + [2])
        client.allocate(3)
        said, truth = get(daemon, "status"), daemon.status()
        window = said.windows[0]
        assert (said.state, said.access) == (status_pb2.DAEMON_STATE_SERVING, status_pb2.STATUS_ACCESS_OPERATOR)
        assert said.time.ToNanoseconds() >= said.start_time.ToNanoseconds() > 0 and said.uptime.ToNanoseconds() > 0
        assert (said.cache.tokens_per_block, window.layers, window.tiers[0].active_blocks) == (4, 2, 3)
        assert [(one.priority, one.blocks) for one in window.tiers[0].cached_by_priority] == [(35, window.tiers[0].cached_blocks)]
        assert (window.prefix_lookup_tokens_total, window.prefix_hit_tokens_total) == (34, 16)
        assert (said.sessions, said.sequences, said.subscribers) == (1, 0, 0)
        assert not any(said.HasField(name) for name in ("engine", "gpu_self_test", "disk", "store", "exchange", "peer_server"))
        for status in (said, truth):  # Between the two answers only the clock has moved.
            status.ClearField("time")
            status.ClearField("uptime")
        assert said == truth


def test_the_lists_are_what_grpc_says(daemon):
    with Client(daemon.connect(), "engine-0") as client:
        client.cache(1, SYSTEM + [1])
        client.pin(SYSTEM)
        assert get(daemon, "tenants") == daemon.admin.ListTenants(admin_pb2.ListTenantsRequest(), timeout=CALL_SECONDS)
        assert get(daemon, "caches") == daemon.admin.ListCaches(caches_pb2.ListCachesRequest(), timeout=CALL_SECONDS)
        (said,) = get(daemon, "sessions").sessions
        (truth,) = daemon.admin.ListSessions(admin_pb2.ListSessionsRequest(), timeout=CALL_SECONDS).sessions
        for session in (said, truth):
            session.ClearField("lease_left")
        assert said == truth
        said = get(daemon, "hit_rate_curve").windows
        truth = daemon.admin.GetHitRateCurve(admin_pb2.GetHitRateCurveRequest(capacity_factors=[0.5, 1, 2, 4, 8]), timeout=CALL_SECONDS).windows
        for window in (*said, *truth):
            window.ClearField("observed_time")
        assert list(said) == list(truth)
        assert get(daemon, "transfers") == daemon.status().transfers


def test_the_form_of_the_json(daemon):
    """Protobuf's JSON, with the names of proto/. Every field that is no message is there."""
    with Client(daemon.connect(), "<engine> \u202e"):
        said = json.loads(text(daemon, "status"))
        assert (said["sessions"], said["pins"], said["draining"]) == ("1", "0", False), "64-bit integers are texts"
        assert said["epoch"] == str(daemon.status().epoch) and said["state"] == "DAEMON_STATE_SERVING"
        assert said["time"].endswith("Z") and said["uptime"].endswith("s")
        assert said["windows"][0]["window_size"] == 0 and said["windows"][0]["tiers"][0]["tier"] == "TIER_PRIMARY"
        assert not {"engine", "disk", "store", "exchange", "peer_server"} & set(said), "messages that are not set are left out"
        assert said["peer_sources"] == []
        (session,) = json.loads(text(daemon, "sessions"))["sessions"]
        assert (session["client_name"], session["lease"], session["writer_pids"]) == ("<engine> \u202e", "30s", [])
        assert "<" not in text(daemon, "sessions"), "a name cannot open a tag"


def test_the_map_has_a_square_for_each_block(daemon):
    with Client(daemon.connect()) as client:
        client.cache(1, SYSTEM + [1])
        client.allocate(2)
        tier = status_pb2.TierBlockMap(
            tier=types_pb2.TIER_PRIMARY, name="primary", blocks_per_cell=1, free_blocks=[0] * 7 + [1] * 57, cached_blocks=[1] * 5 + [0] * 59,
            active_blocks=[0] * 5 + [1] * 2 + [0] * 57, pinned_blocks=[0] * 64, in_flight_blocks=[0] * 64)
        expected = status_pb2.BlockMap(windows=[status_pb2.WindowBlockMap(tiers=[tier])])
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
            return [(row.tokens, row.hits, row.saved_tokens, list(row.first_tokens), row.namespace, row.pinned, row.tenant)
                    for row in get(daemon, "prefixes").prefixes]
        salted, plain = types_pb2.Namespace(cache_salt="s"), types_pb2.Namespace()
        eventually(daemon, prefixes, [(16, 4, 64, SYSTEM[:4], salted, False, ""), (8, 3, 24, short[:4], plain, True, "")])
        row = get(daemon, "prefixes").prefixes[1]
        assert (row.tier, row.tier_name, row.priority) == (types_pb2.TIER_PRIMARY, "primary", 35) and row.hash != 0


def test_sessions_and_tenants(daemon):
    with Client(daemon.connect(), "a"), Client(daemon.connect(), "b", lease_ms=5000) as second, Client(daemon.connect(), "c"):
        second.add(1, SYSTEM)
        rows = get(daemon, "sessions").sessions
        assert [(row.client_name, row.sequences, row.lease.ToSeconds()) for row in rows] == [("a", 0, 30), ("b", 1, 5), ("c", 0, 30)]
        assert 0 < rows[1].lease_left.ToNanoseconds() <= 5_000_000_000
        page = get(daemon, "sessions?limit=2")
        assert [row.client_name for row in page.sessions] == ["a", "b"] and page.next_page_token
        rest = get(daemon, f"sessions?limit=2&from={page.next_page_token}")
        assert [row.client_name for row in rest.sessions] == ["c"] and rest.next_page_token == ""
        (default_tenant,) = get(daemon, "tenants").tenants
        assert (default_tenant.name, default_tenant.sessions, default_tenant.sequences) == ("", 3, 1)
        assert list(default_tenant.use) == [admin_pb2.TenantUse(tier=types_pb2.TIER_PRIMARY, tier_name="primary", used_blocks=4)]


def test_the_tail_of_the_events(daemon):
    with Client(daemon.connect()) as client:
        client.cache(1, SYSTEM + [1])
        client.free(client.allocate(1))
        tail = get(daemon, "events")
        assert tail.epoch == daemon.status().epoch and (tail.oldest_revision, tail.skipped) == (1, 0)
        assert [event.revision for event in tail.events] == [*range(1, tail.last_revision + 1)]
        assert [event.type for event in tail.events] == [
            events_pb2.EVENT_TYPE_CREATED, events_pb2.EVENT_TYPE_STORED, events_pb2.EVENT_TYPE_STORED, events_pb2.EVENT_TYPE_CREATED,
            events_pb2.EVENT_TYPE_REMOVED]
        assert list(tail.events[0].capacity) == [events_pb2.TierCapacity(tier=types_pb2.TIER_PRIMARY, blocks=64)]
        assert (tail.events[1].blocks, tail.events[1].stored.tokens) == (4, 16)
        assert tail.events[4].reason == events_pb2.REMOVAL_REASON_RELEASED
        assert [event.revision for event in get(daemon, "events?limit=2").events] == [4, 5]
        some = get(daemon, "events?since=1&limit=3")
        assert ([event.revision for event in some.events], some.skipped) == ([3, 4, 5], 1)
        for since in (5, 6, 1 << 63):
            assert list(get(daemon, f"events?since={since}").events) == []
        assert list(get(daemon, "events?limit=0").events) == []


def test_events_that_the_log_has_dropped_are_counted(start_daemon):
    daemon = start_daemon(server=ON_LOOPBACK, events={"max_events": 20})
    with Client(daemon.connect()) as client:
        for _ in range(40):
            client.free(client.allocate(1))
        tail = get(daemon, "events?limit=500")
        assert tail.oldest_revision > 50 and len(tail.events) == tail.last_revision - tail.oldest_revision + 1
        assert tail.skipped == tail.oldest_revision - 1


def test_subscribers_and_their_lag(daemon):
    watch = events_pb2_grpc.EventServiceStub(daemon.connect()).Watch(events_pb2.WatchRequest())
    next(watch)
    with Client(daemon.connect()) as client:
        client.cache(1, SYSTEM)
        for response in watch:
            if response.revision == daemon.status().revision:
                break
        (row,) = get(daemon, "subscribers").subscribers
        assert not row.filtered and not row.snapshot
        assert (row.kind, row.role, row.tenant) == (status_pb2.SUBSCRIBER_KIND_WATCH, status_pb2.CALLER_ROLE_OPERATOR, "")
        assert (row.lag_events, row.sent_revision) == (0, daemon.status().revision)
        assert daemon.status().start_time.ToNanoseconds() <= row.open_time.ToNanoseconds() <= daemon.status().time.ToNanoseconds()
    watch.cancel()
    eventually(daemon, lambda: list(get(daemon, "subscribers").subscribers), [])


def test_a_filtered_subscriber_does_not_lag_for_what_it_does_not_see(start_daemon):
    daemon = start_daemon(server=ON_LOOPBACK, events={"progress_interval": "1m"})  # No progress mark arrives during the test.
    watch = events_pb2_grpc.EventServiceStub(daemon.connect()).Watch(
        events_pb2.WatchRequest(types=[events_pb2.EVENT_TYPE_STORED]))
    next(watch)
    with Client(daemon.connect()) as client:
        for _ in range(100):
            client.free(client.allocate(1))
        eventually(daemon, lambda: [(row.filtered, row.lag_events) for row in get(daemon, "subscribers").subscribers],
                   [(True, 0)])
    watch.cancel()


def test_transfers_and_history(start_daemon):
    daemon = start_daemon(cache={"primary": 8, "secondary": 16}, server=ON_LOOPBACK)
    with Client(daemon.connect()) as client:
        client.cache(1, SYSTEM)
        assert client.offload(SYSTEM) == 4
        (way,) = get(daemon, "transfers").directions
        assert (way.source_name, way.target_name, way.copies_total) == ("primary", "secondary", 4)
        assert way.bytes_total == 4 * daemon.status().windows[0].tiers[0].block_bytes
        eventually(daemon, lambda: get(daemon, "history").offloaded_blocks_total[-1], 4)
        history = get(daemon, "history")
        totals = [getattr(history, field.name) for field in history.DESCRIPTOR.fields if field.name.endswith("_total")]
        assert {len(column) for column in (*totals, history.times, history.revision, *(tier.used_blocks for tier in history.tiers))} == {len(history.times)}
        assert [(tier.tier, tier.name) for tier in history.tiers] == [(types_pb2.TIER_PRIMARY, "primary"), (types_pb2.TIER_SECOND, "secondary")]
        assert [tier.name for tier in get(daemon, "status").cache.tiers] == ["primary", "secondary"]
        times = [time.ToNanoseconds() for time in history.times]
        assert times == sorted(times) and history.tiers[1].used_blocks[-1] == 4 and history.interval.ToSeconds() == 2


def test_what_is_wrong_is_said_in_json(daemon):
    assert refusal(daemon, "/api/v1/events?since=-1") == refusal(daemon, "/api/v1/sessions?limit=x") == (400, "INVALID_ARGUMENT")
    assert refusal(daemon, "/api/v1/sessions?from=2") == (400, "INVALID_ARGUMENT"), "from is the token of the page before"
    assert refusal(daemon, "/api/v1/nothing") == refusal(daemon, "/api/v2/status") == (404, "NOT_FOUND")
    assert head_of(daemon, "/api/v1/status", "POST")[0] == head_of(daemon, "/api/v1/status", "OPTIONS")[0] == 405


def test_headers(daemon):
    code, page = head_of(daemon, "/")
    assert code == 200 and page["Content-Type"] == "text/html; charset=utf-8"
    policy = page["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "connect-src 'self'" in policy and "unsafe" not in policy and "*" not in policy
    for path in ("/", "/metrics", *(f"/api/v1/{name}" for name in ANSWERS)):
        code, headers = head_of(daemon, path)
        assert code == 200 and headers["X-Content-Type-Options"] == "nosniff" and headers["Cache-Control"] == "no-store"
        assert not [name for name in headers if name.lower().startswith("access-control")]


def test_on_loopback_another_name_reads_nothing(daemon):
    port = daemon.http_address.rpartition(":")[2]
    for name in ANSWERS:
        assert refusal(daemon, f"/api/v1/{name}", Host=f"evil.example:{port}") == (421, "FAILED_PRECONDITION")
        for host in ("localhost", f"localhost:{port}", f"127.0.0.1:{port}", f"[::1]:{port}", "[::1]", "LOCALHOST:1"):
            get(daemon, name, Host=host)
    for host in ("localhost.evil.example", "127.0.0.1.evil.example", "192.168.0.1", "127.0.0.1@evil", ":"):
        assert refusal(daemon, "/api/v1/status", Host=host)[0] == 421, host
        assert daemon.http_as("/metrics", None, Host=host)[0] == 421, host
    assert daemon.http_as("/metrics", None, Host=f"localhost:{port}")[0] == 200


def test_a_page_of_another_site_reads_nothing(daemon):
    for path in ("/metrics", *(f"/api/v1/{name}" for name in ANSWERS)):
        for origin in ("http://evil.example", "null", "http://localhost:1"):
            assert daemon.http_as(path, None, Origin=origin)[0] == 403, (path, origin)
        assert daemon.http_as(path, None, Origin=f"http://{daemon.http_address}")[0] == 200, path


@pytest.mark.parametrize("header", ["Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-IP"])
def test_without_operators_clients_of_a_proxy_are_told_nothing_of_tenants(daemon, header):
    for name in FOR_OPERATORS:
        assert refusal(daemon, f"/api/v1/{name}", **{header: "192.0.2.7"}) == (403, "PERMISSION_DENIED")
    for name in FOR_ALL:
        get(daemon, name, **{header: "192.0.2.7"})
    assert get(daemon, "status", **{header: "192.0.2.7"}).access == status_pb2.STATUS_ACCESS_REFUSED
    assert get(daemon, "status").access == status_pb2.STATUS_ACCESS_OPERATOR


def test_behind_a_proxy_tokens_count(start_daemon):
    daemon = start_daemon(operator_token=OPERATOR, server=ON_LOOPBACK)
    passed_on = {"X-Forwarded-For": "192.0.2.7", "Via": "1.1 proxy"}
    assert refusal(daemon, "/api/v1/sessions", **passed_on) == (401, "UNAUTHENTICATED")
    assert get(daemon, "sessions", OPERATOR, **passed_on) == admin_pb2.ListSessionsResponse()


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
            for token in (None, STRANGER, ALICE):
                assert "alice" not in text(daemon, name, token), "it names no tenant"
        assert [get(daemon, "status", token).access for token in (None, STRANGER, ALICE, OPERATOR)] == [
            status_pb2.STATUS_ACCESS_NEEDS_TOKEN, status_pb2.STATUS_ACCESS_NEEDS_TOKEN, status_pb2.STATUS_ACCESS_REFUSED,
            status_pb2.STATUS_ACCESS_OPERATOR]
        (row,) = get(daemon, "sessions", OPERATOR).sessions
        assert (row.client_name, row.tenant) == ("engine-of-alice", "alice")
        alice = get(daemon, "tenants", OPERATOR).tenants[1]
        assert alice.name == "alice" and alice.use[0].quota_blocks == 10 and alice.use[0].used_blocks == 4
        assert get(daemon, "events", OPERATOR).events[-1].tenant == "alice"


def test_strangers_share_answers_and_operators_do_not(start_daemon):
    daemon = start_daemon(operator_token=OPERATOR, server=ON_LOOPBACK)

    def times(token):
        return [get(daemon, "status", token).time.ToNanoseconds() for _ in range(20)]

    assert len(set(times(OPERATOR))) == 20
    seen = times(None)
    assert len(set(seen)) < 20
    daemon.wait_until(lambda daemon: get(daemon, "status").time.ToNanoseconds() > seen[-1])


def test_a_query_that_is_ignored_does_not_make_the_list_of_caches_anew(start_daemon):
    daemon = start_daemon(operator_token=OPERATOR, server=ON_LOOPBACK)

    def sessions(query):
        return get(daemon, f"caches?cache={query}").caches[0].sessions

    def shared(number):
        before = sessions(f"a{number}")
        with Client(authorized(daemon.connect(), OPERATOR)):
            return sessions(f"b{number}") == before

    assert any(shared(number) for number in range(20))


def test_names_of_other_machines_and_their_errors_are_for_operators(start_daemon):
    daemon = start_daemon(operator_token=OPERATOR, server=ON_LOOPBACK, secrets={"daemons.tokens": "token-of-the-daemons"},
                          cache={"model": {"name": "org/tiny"}}, **other_machines("daemons.tokens"))
    with Client(authorized(daemon.connect(), OPERATOR)) as client:
        request = prefixes_pb2.FetchPrefixRequest(session=client.session, tokens=range(8))
        request.source.address = daemon.config["peers"]["address"]
        client.stub.FetchPrefix(request, timeout=CALL_SECONDS)
    address = daemon.config["peers"]["address"]
    daemon.wait_until(lambda daemon: get(daemon, "status", OPERATOR).store.last_error != "")
    for token in (None, OPERATOR):
        said = get(daemon, "status", token)
        (source,) = said.peer_sources
        assert not said.store.up and source.connection.up
        assert list(said.exchange.fetches_total) == [status_pb2.NamedCount(name="missing", count=1)]
        shown = [bool(said.store.servers), bool(said.store.last_error), bool(source.address), bool(said.peer_server.address)]
        assert shown == [token == OPERATOR] * 4, shown
        assert (address in text(daemon, "status", token)) == (token == OPERATOR)
    assert list(said.store.servers) == ["127.0.0.1:1"] and source.address == address


def test_a_stranger_is_not_told_where_the_memory_for_caches_goes(start_daemon):
    daemon = start_daemon(operator_token=OPERATOR, secrets={"alice.tokens": ALICE}, server=ON_LOOPBACK,
                          tenants=[{"name": "alice", "tokens_file": "alice.tokens"}])
    stranger, alice, operator = (get(daemon, "caches", token).caches[0] for token in (None, ALICE, OPERATOR))
    assert alice == operator and len(operator.layers) > 0, "as over gRPC, where tenants may list caches"
    operator.ClearField("layers")
    assert stranger == operator


def test_without_operators_other_machines_are_told_nothing_of_tenants(start_daemon):
    daemon = start_daemon(server={"http_address": "0.0.0.0:0", "http_insecure": True})
    daemon.http_address = f"127.0.0.1:{daemon.http_address.rpartition(':')[2]}"
    for name in FOR_OPERATORS:
        assert refusal(daemon, f"/api/v1/{name}") == (403, "PERMISSION_DENIED")
    for name in FOR_ALL:
        get(daemon, name, Host="pagoda.example:7071")
    assert get(daemon, "status").access == status_pb2.STATUS_ACCESS_REFUSED
