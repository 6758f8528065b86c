"""A tenant takes all that it can get beside a quiet tenant. The quiet tenant's calls are answered
in time, its cache stays, and neither tenant hears of the other."""

import signal
import statistics
import time

import abusive_client
import pytest
from battery import LONG, Figures, ask_for_short_slices, check_adds_up, check_afterwards, pick
from forked_clients import forked_clients
from pagoda_client import Client, authorized
from pagoda.v1 import admin_pb2

QUIET, ABUSER, OPERATOR = (f"token-of-{name}-0123456789" for name in ("quiet", "abuser", "the-operator"))
ABUSERS = 2
SESSIONS = pick(short=50, full=500)
# Operations in each of the abuser's batches.
BATCHES = [1, 255, *([3000] if LONG else [])]
ROUNDS = pick(short=5, full=25)
CALLS = 1000  # The calls of a round. In a short round the abusers' beginning would be much of what is slow.
# The quiet tenant's p99 beside the abuser, divided by its p99 while the abuser uses another daemon.
# Both contain the machine's load, so the ratio shows the cost of sharing one daemon.
MOST_BY_SHARING = 2.0
# The quiet tenant's p99 beside the abuser, divided by its p99 alone, by the operations in the
# abuser's batches. Only the first contains the machine's load.
MOST_SLOWDOWN = {1: 2.5, 255: 4.0, 3000: 6.0}
# The capacity, the abuser's quota, and the quiet tenant's cached prompt: 50 blocks, less than its
# share, which is half of the blocks.
CAPACITY, QUOTA = 256, 160
PROMPT = list(range(70_000, 70_200))


@pytest.fixture
def daemons(start_daemon):
    """The quiet tenant's, and one that only the abuser uses."""
    daemons = [start(start_daemon), start(start_daemon)]
    yield daemons
    for daemon in daemons:
        end_sessions(daemon)


def start(start_daemon):
    return start_daemon(
        cache={"primary": CAPACITY}, sessions={"max_lease": "10m"}, operator_token=OPERATOR, secrets={"quiet.tokens": QUIET, "abuser.tokens": ABUSER},
        tenants=[{"name": "quiet", "tokens_file": "quiet.tokens"},
                 {"name": "abuser", "tokens_file": "abuser.tokens", "primary_blocks": QUOTA}])


def end_sessions(daemon):
    while sessions := daemon.admin.ListSessions(admin_pb2.ListSessionsRequest(page_size=1000), timeout=20).sessions:
        for session in sessions:
            daemon.admin.EndSession(admin_pb2.EndSessionRequest(session_id=session.session_id), timeout=20)


def calls(client):
    """The seconds of CALLS calls: steps of a decoding sequence, alternating with matches of a
    cached prompt."""
    seconds = []
    client.add(1, [7, 8, 9])
    for number in range(CALLS):
        before = time.perf_counter()
        if number % 2:
            matched = client.match(PROMPT).matched_tokens
        else:
            client.append(1, [number])
        seconds.append(time.perf_counter() - before)
        if number % 2:
            assert matched == len(PROMPT) - 1, "the quiet tenant's cached prompt is lost"
        if number % 50 == 49:
            client.free_sequence(1)
            client.add(1, [7, 8, number])
    client.free_sequence(1)
    return seconds


def p99(seconds):
    return statistics.quantiles(seconds, n=100)[98]


def everybody(abusers, number):
    for abuser in abusers:
        abuser.send(number)


def stop(daemon, abusers):
    """Stops the abusers, and waits until the daemon has done all that they sent."""
    everybody(abusers, signal.SIGSTOP)
    revision = None
    while (now := daemon.status().revision) != revision:
        revision = now
        time.sleep(0.05)


def tenants(daemon):
    listed = daemon.admin.ListTenants(admin_pb2.ListTenantsRequest(), timeout=20).tenants
    return {tenant.name: tenant for tenant in listed}


def abuse(daemon, operations):
    return forked_clients(abusive_client.__file__, ABUSERS, 0, f"unix:{daemon.unix_socket}", ABUSER, SESSIONS, operations, "quiet", *PROMPT)


def slowdowns(quiet, here, elsewhere):
    """The quiet tenant's p99 alone, beside abuse elsewhere, and beside abuse here. `here` and
    `elsewhere` are (daemon, abusers)."""
    alone, load, beside = [], [], []
    for _ in range(ROUNDS):  # The three alternate, so all contain the other load of this machine.
        alone += calls(quiet)
        for (daemon, abusers), seconds in ((elsewhere, load), (here, beside)):
            everybody(abusers, signal.SIGCONT)
            seconds += calls(quiet)
            stop(daemon, abusers)
    return p99(alone), p99(load), p99(beside)


@pytest.mark.parametrize("operations", BATCHES)
def test_an_abusive_tenant_does_not_disturb_a_quiet_one(daemons, operations):
    figures = Figures(f"tenants, batches of {operations}")
    ask_for_short_slices()
    daemon, other_daemon = daemons
    quiet = Client(authorized(daemon.connect(), QUIET), "quiet", lease_ms=abusive_client.LEASE_MS)
    quiet.cache(1, PROMPT)
    with abuse(daemon, operations) as abusers, abuse(other_daemon, operations) as others:
        here, elsewhere = (daemon, abusers), (other_daemon, others)
        sessions = tenants(daemon)["abuser"].sessions
        stop(*here)
        stop(*elsewhere)
        alone, load, beside = slowdowns(quiet, here, elsewhere)
        if beside > MOST_SLOWDOWN[operations] * alone or beside > MOST_BY_SHARING * load:  # Perhaps other load of this machine.
            alone, load, beside = slowdowns(quiet, here, elsewhere)
        (use,) = tenants(daemon)["abuser"].use
        check_adds_up(daemon)
        everybody([*abusers, *others], signal.SIGCONT)
        everybody([*abusers, *others], signal.SIGUSR1)
        told = [abuser.ask("tell") for abuser in abusers]
        for other in others:
            other.ask("tell")
    counts = {name: sum(abuser["counts"].get(name, 0) for abuser in told) for name in ("calls", "refused", "pryings", "events")}
    figures.tell(**counts, sessions=sessions, p99_alone=f"{alone * 1e3:.2f} ms",
                 p99_beside=f"{beside * 1e3:.2f} ms", ratio=f"{beside / alone:.1f}", p99_abuse_elsewhere=f"{load * 1e3:.2f} ms",
                 ratio_by_sharing=f"{beside / load:.1f}")
    assert [abuser["seen"] for abuser in told] == [[]] * ABUSERS
    assert operations == 1 or QUOTA - 8 <= use.used_blocks <= QUOTA, "the abuser's quota is not full"
    assert sessions == ABUSERS * SESSIONS
    assert counts["calls"] > 10 * ROUNDS and counts["pryings"] > 0, "the abusers did too little"
    assert operations == 1 or counts["events"] > 0, "the abuser did not look at events"
    assert beside <= MOST_SLOWDOWN[operations] * alone, "the quiet tenant waits for the abuser"
    assert beside <= MOST_BY_SHARING * load, "the quiet tenant waits because the abuser uses the same daemon"
    quiet.close()
    end_sessions(daemon)
    check_afterwards(daemon)
