"""What pagodactl shows of a daemon's clients, and what an operator ends with it."""

import os
import pty
import re
import subprocess

import pool_view
import pytest
from pagoda_client import Client, OperationError, authorized
from pagoda_daemon import QUIET_STOP_SECONDS
from pagodactl import command, run, run_json, run_ok

OPERATOR = "token-of-the-operator-0123456789"


def prompt(count):
    return list(range(count))


@pytest.fixture
def two_clients(daemon):
    """An engine with two sequences and a client with raw blocks."""
    with Client(daemon.channel, name="engine-0") as engine, Client(daemon.channel, name="loader", lease_ms=45_000) as loader:
        engine.cache(9, prompt(8))
        engine.add(1, prompt(10))
        engine.add(2, [7] * 6)
        loader.allocate(5)
        yield engine, loader


def test_a_name_does_nothing_to_a_terminal(start_daemon):
    """Nor to a program that reads JSON: that one gets the name as it is."""
    daemon = start_daemon()
    name = "\x1b[31mEVIL\x1b[2J\r\u202e\x7f"
    with Client(daemon.channel, name):
        assert run_json(daemon, "sessions")["sessions"][0]["client_name"] == name
        near, far = pty.openpty()
        ended = subprocess.run(command(daemon, "sessions"), stdout=far, stderr=far, env={"TERM": "xterm"}, timeout=60, check=False)
        os.close(far)
        written = os.read(near, 65536)
        os.close(near)
    assert ended.returncode == 0, written
    assert rb"\u001b[31mEVIL\u001b[2J\r\u202e\u007f" in written
    assert not re.search(rb"[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f]|\r(?!\n)|EVIL\x1b", written), written


def test_sessions_show_what_each_client_has(daemon, two_clients):
    engine, loader = two_clients
    sessions = run_json(daemon, "sessions")["sessions"]
    assert [row["client_name"] for row in sessions] == ["engine-0", "loader"]
    assert [row["session_id"] for row in sessions] == [str(engine.session.session_id), str(loader.session.session_id)]
    assert (sessions[0]["sequences"], sessions[0]["raw_blocks"]) == ("2", "0")
    assert (sessions[1]["sequences"], sessions[1]["raw_blocks"]) == ("0", "5")
    assert sessions[1]["lease"] == "45s"
    assert 0 < float(sessions[1]["lease_left"].removesuffix("s")) <= 45
    table = run_ok(daemon, "sessions")
    assert "CLIENT" in table and "engine-0" in table and table.endswith("2 sessions\n")


def test_sequences_show_tokens_and_blocks(daemon, two_clients):
    engine, loader = two_clients
    rows = run_json(daemon, "sequences")["sequences"]
    assert [(row["sequence_id"], row["matched_tokens"], row["token_count"], row["blocks"]) for row in rows] == [
        ("1", 8, 10, 3), ("2", 0, 6, 2)]
    assert run_json(daemon, "sequences", "--session", loader.session.session_id)["sequences"] == []
    assert len(run_json(daemon, "sequences", "--session", engine.session.session_id, "--limit", 1)["sequences"]) == 1
    assert run_ok(daemon, "sequences").endswith("2 sequences\n")


def test_deferred_blocks_are_counted(daemon):
    with Client(daemon.channel) as client:
        client.add(1, prompt(8))
        client.run(step=3, completed_step=1, free_sequence={"sequence_id": 1})
        row, = run_json(daemon, "sessions")["sessions"]
        assert (row["step"], row["completed_step"], row["deferred_blocks"]) == ("3", "1", "2")


def test_lists_are_fetched_to_their_end(daemon):
    opened = [Client(daemon.channel, name=f"client-{number}") for number in range(250)]
    rows = run_json(daemon, "sessions")["sessions"]
    assert [row["session_id"] for row in rows] == [str(client.session.session_id) for client in opened]
    assert len(run_json(daemon, "sessions", "--limit", 120)["sessions"]) == 120
    assert run_ok(daemon, "sessions").endswith("250 sessions\n")


def test_inspect_shows_what_is_cached_where(start_daemon):
    daemon = start_daemon(cache={"secondary": 64})
    with Client(daemon.channel) as client:
        client.cache(1, prompt(14))
        client.offload(prompt(14))
        client.prefetch(prompt(8))
        client.wait(client.prefetch(prompt(8)).ready_ticket)
        pin = client.pin(prompt(4))
        client.retain(prompt(14), {"token_start": 8, "priority": 80})
        tokens = ",".join(map(str, prompt(20)))
        seen = run_json(daemon, "inspect", "--tokens", tokens)
        assert seen["matched_tokens"] == 14
        assert [(block["tier_name"], block["token_count"], block["priority"], block["pinned"]) for block in seen["blocks"]] == [
            ("primary", 4, 35, True), ("primary", 4, 35, False), ("secondary", 4, 80, False), ("secondary", 2, 80, False)]
        picture = run_ok(daemon, "inspect", "--tokens", tokens)
        assert "0  !#==.\n" in picture and "14 of 20 tokens match" in picture
        client.unpin(pin.pin_id)
    secondary = run_json(daemon, "status")["windows"][0]["tiers"][1]
    assert secondary["cached_by_priority"] == [{"priority": 80, "blocks": 2}]
    assert "cached at priority 80: 2\n" in run_ok(daemon, "status")
    # Another namespace has other prefixes.
    assert run_json(daemon, "inspect", "--tokens", tokens, "--salt", "other")["blocks"] == []
    empty = daemon.folder / "empty.txt"
    empty.write_text("")
    assert "INVALID_COUNT" in run(daemon, "inspect", "--token-file", empty).stderr


def test_an_ended_session_is_over_for_its_client(daemon):
    client = Client(daemon.channel, name="stuck")
    client.cache(9, prompt(8))
    client.add(1, prompt(20))
    assert run_json(daemon, "end-session", client.session.session_id) == {}
    assert run_json(daemon, "sessions")["sessions"] == []
    with pytest.raises(OperationError) as refused:
        client.allocate(1)
    assert refused.value.reason == "STALE_SESSION"
    # No client mapped the pool, so nothing is quarantined. Committed blocks stay cached.
    assert run_json(daemon, "quarantine")["quarantines"] == []
    assert run_json(daemon, "inspect", "--tokens", "0,1,2,3,4,5,6,7")["matched_tokens"] == 8
    again = run(daemon, "end-session", 4711)
    assert again.returncode == 1 and "UNKNOWN_SESSION" in again.stderr


def test_what_a_living_writer_could_write_is_quarantined_until_an_operator_forces_it(daemon):
    client = Client(daemon.channel, name="writer")
    pool_view.map_pool(client.pools()[0])
    client.allocate(5)
    session = client.session.session_id
    assert run_json(daemon, "sessions")["sessions"][0]["writer_pids"] == [os.getpid()]
    run_ok(daemon, "end-session", session)
    row, = run_json(daemon, "quarantine")["quarantines"]
    assert (row["session_id"], row["client_name"], row["blocks"], row["writer_pids"]) == (str(session), "writer", 5, [os.getpid()])
    assert "5 blocks of 1 ended session" in run_ok(daemon, "status")
    assert "quarantined: 5 blocks of 1 ended session" in run_ok(daemon, "top", "--once", "--interval", 0.1)
    refused = run(daemon, "quarantine", "release", session)
    assert refused.returncode == 1 and "WRITER_ALIVE" in refused.stderr and "--force" in refused.stderr
    assert daemon.primary().in_flight_blocks == 5
    assert run_ok(daemon, "quarantine", "release", session, "--force") == f"5 blocks of session {session} released\n"
    assert daemon.primary().free_blocks == 64
    assert "nothing is quarantined" in run_ok(daemon, "quarantine", "list")


def test_tenants_show_what_each_has(start_daemon):
    daemon = start_daemon(operator_token=OPERATOR, secrets={"team-a.tokens": "token-of-team-a-0123456789"},
                          tenants=[{"name": "team-a", "tokens_file": "team-a.tokens"}])
    token_file = daemon.folder / "operators.tokens"
    channel = authorized(daemon.connect(), "token-of-team-a-0123456789")
    with Client(channel, name="engine-a") as client:
        client.cache(1, prompt(8))
        client.add(2, [9] * 4)
        default_tenant, team = run_json(daemon, "--auth-token-file", token_file, "tenants")["tenants"]
        assert default_tenant["name"] == ""
        assert (team["name"], team["sessions"], team["sequences"]) == ("team-a", "1", "1")
        use, = team["use"]
        assert use == {"window_size": 0, "tier": "TIER_PRIMARY", "tier_name": "primary", "used_blocks": 3, "cached_blocks": 2}
        session, = run_json(daemon, "--auth-token-file", token_file, "sessions")["sessions"]
        assert session["tenant"] == "team-a"
        assert "team-a" in run_ok(daemon, "--auth-token-file", token_file, "top", "--once", "--interval", 0.1)
        # The load needs an operator's rights: it opens sessions and allocates raw blocks.
        assert run_json(daemon, "--auth-token-file", token_file, "bench", "--seconds", 0.2, "--batch", 8)["stream"]["operations"] > 0
    stranger = run(daemon, "sessions")
    assert stranger.returncode == 1 and "UNAUTHENTICATED" in stranger.stderr


def test_bench_measures_and_leaves_nothing_behind(daemon):
    report = run_json(daemon, "bench", "--seconds", 0.6, "--batch", 16, "--concurrency", 2)
    for phase in ("unary", "stream"):
        assert report[phase]["operations"] > 0 and report[phase]["operations_per_second"] > 0
        assert 0 < report[phase]["latency_p50_seconds"] <= report[phase]["latency_p99_seconds"]
    status = daemon.status()
    assert status.sessions == 0
    assert daemon.primary().free_blocks == 64
    assert "Session stream, 16 per batch" in run_ok(daemon, "bench", "--seconds", 0.2, "--batch", 16)


def test_bench_does_not_evict_cached_content(daemon):
    with Client(daemon.channel) as client:
        client.cache(1, prompt(40))
        refused = run(daemon, "bench", "--seconds", 0.2, "--batch", 60)
        assert refused.returncode == 1 and "54 are free" in refused.stderr, refused
        assert refused.stdout == ""
        assert client.match(prompt(41)).matched_tokens == 40


def test_a_drain_is_begun_and_waited_for(daemon):
    client = Client(daemon.channel)
    client.allocate(3)
    assert run_json(daemon, "drain", "--wait") == {}
    assert daemon.wait(QUIET_STOP_SECONDS) == 0
    assert "an operator asked for a drain" in daemon.log.read_text()
    assert run(daemon, "sessions").returncode == 3


def test_a_drain_is_begun_at_once(daemon):
    assert run_json(daemon, "drain") == {}
    assert daemon.wait(QUIET_STOP_SECONDS) == 0
