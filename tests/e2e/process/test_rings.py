"""Batches through rings in shared memory, where something outside of the batch changes: the daemon
ends or starts again, the session is over, an operator acts for a tenant."""

import contextlib

import pagoda
import pytest
from pagoda import _rings
from pagoda._contract import Calls, v1
from pagoda._map_socket import SessionRef
from pagoda.v1 import admin_pb2
from pagodactl import run_message

pytest.importorskip("pagoda._native", reason="the build has no native extension for the Python package")

SECONDS = 30
ALICE, OPERATOR = "token-of-alice-0123456789", "token-of-the-operator-0123456789"


def connect(daemon, **options):
    return pagoda.connect(f"unix:{daemon.unix_socket}", **options)


def transports(daemon):
    """By session, as pagodactl tells them."""
    names = {admin_pb2.SESSION_TRANSPORT_RINGS: "rings", admin_pb2.SESSION_TRANSPORT_GRPC: "grpc"}
    return {session.session_id: names[session.transport] for session in run_message(daemon, admin_pb2.ListSessionsResponse(), "sessions").sessions}


def batches_run(daemon):
    """Through rings."""
    lines = daemon.http("/metrics")[1].splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("pagoda_ring_batches_total "))


@pytest.mark.parametrize("end", ["terminate", "kill"])
def test_a_restart_ends_the_session_and_the_next_one_has_rings_again(start_daemon, end):
    daemon = start_daemon()
    client = connect(daemon, transport="ring")
    sequence = client.sequence(range(10))
    assert list(transports(daemon).values()) == ["rings"]
    getattr(daemon, end)()
    daemon.start()
    with pytest.raises(pagoda.SessionGone) as failure:
        sequence.append(7)
    assert failure.value.reason == "UNKNOWN_SESSION"
    with contextlib.suppress(pagoda.PagodaError):
        client.close()
    with connect(daemon, transport="ring") as client:
        assert client.sequence(range(10)).token_count == 10
        assert list(transports(daemon).values()) == ["rings"]


def test_a_session_that_used_rings_outlives_a_daemon_without_them(start_daemon):
    daemon = start_daemon()
    client = connect(daemon)
    client.advance()
    daemon.kill()
    daemon.config["server"]["rings"] = False
    daemon.start()
    with pytest.raises(pagoda.SessionGone):
        client.advance()
    with contextlib.suppress(pagoda.PagodaError):
        client.close()
    with pytest.raises(pagoda.NotServed):
        connect(daemon, transport="ring")
    with connect(daemon) as client:
        assert client.sequence(range(10)).token_count == 10
        assert list(transports(daemon).values()) == ["grpc"]


def test_a_batch_of_a_session_that_an_operator_ended_is_refused_as_over_grpc(start_daemon):
    daemon = start_daemon()
    refusals = []
    for transport in ("ring", "grpc"):
        client = connect(daemon, transport=transport)
        client.allocate_blocks(2)
        daemon.admin.EndSession(admin_pb2.EndSessionRequest(session_id=client.session_ref.session_id), timeout=SECONDS)
        with pytest.raises(pagoda.SessionGone) as failure:
            client.allocate_blocks(1)
        refusals.append((failure.value.reason, failure.value.code))
        assert daemon.primary().active_blocks == 0
        with contextlib.suppress(pagoda.PagodaError):
            client.close()
    assert refusals[0] == refusals[1]


def outcomes_for_alice(daemon, transport):
    """What an operator's session for the tenant alice comes to."""
    calls = Calls(daemon.connect(), (("authorization", f"Bearer {OPERATOR}"),))
    opened = calls.open_session(v1.OpenSessionRequest(tenant="alice"), timeout=SECONDS)
    rings = _rings.open_rings(transport, SessionRef.take(opened), is_local=True)
    with pagoda.Client(daemon.connect(), calls, opened, SECONDS, rings) as client:
        outcomes = [client.sequence(range(10)).token_count]
        for tenant in ("alice", "", "carol"):
            try:
                outcomes.append(client.sequence(range(20, 30), namespace=pagoda.Namespace(tenant=tenant)).token_count)
            except pagoda.PagodaError as error:
                outcomes.append(error.reason)
        with pytest.raises(pagoda.Exhausted) as failure:
            client.sequence(range(1000, 1050))  # More than what is left of the quota.
        outcomes.append(failure.value.reason)
        listed = daemon.admin.ListTenants(admin_pb2.ListTenantsRequest(), timeout=SECONDS).tenants
        outcomes.append({tenant.name: (tenant.use[0].used_blocks, tenant.sessions) for tenant in listed})
    return outcomes


def test_an_operators_session_for_a_tenant_is_that_tenants_through_rings_too(start_daemon):
    daemon = start_daemon(operator_token=OPERATOR, secrets={"alice.tokens": ALICE, "carol.tokens": "token-of-carol-0123456789"},
                          server={"http_address": "127.0.0.1:0"},
                          tenants=[{"name": "alice", "tokens_file": "alice.tokens", "primary_blocks": 16},
                                   {"name": "carol", "tokens_file": "carol.tokens"}])
    over_grpc = outcomes_for_alice(daemon, "grpc")
    before = batches_run(daemon)
    assert outcomes_for_alice(daemon, "ring") == over_grpc
    assert batches_run(daemon) > before
    assert over_grpc[-1]["alice"][0] > 0 and over_grpc[-1][""][0] == 0
