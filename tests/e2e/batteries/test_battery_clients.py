"""Clients are killed, or stopped until after their lease and then continued. Their blocks come
back, and no client receives a block that another can still write."""

import signal
import time

import doomed_client
import pool_view
import pytest
from battery import Figures, Stalls, check_adds_up, check_afterwards, pick
from forked_clients import forked_clients
from pagoda_client import Client
from pagoda.v1 import admin_pb2

WAVES = pick(short=2, full=10)
CLIENTS_IN_A_WAVE = pick(short=8, full=20)
LEASE_MS = 1000
# A session's blocks are released at most so many seconds after its lease has ended.
GRACE = 1.0
CAPACITY = 512


@pytest.fixture
def daemon(start_daemon):
    return start_daemon(cache={"primary": CAPACITY})


def quarantines(daemon):
    """The blocks in quarantine, by the process that could write them. None stands for a process
    that has just ended."""
    listed = daemon.admin.ListQuarantines(admin_pb2.ListQuarantinesRequest(), timeout=20).quarantines
    return {next(iter(quarantine.writer_pids), None): quarantine.blocks for quarantine in listed}


def wait_for_quarantines(daemon, pids, seconds):
    """Waits until exactly the processes `pids` have blocks in quarantine. Checks that no other
    blocks are in flight."""
    daemon.wait_until(lambda daemon: quarantines(daemon).keys() == pids, seconds)
    status = check_adds_up(daemon)
    blocks = sum(quarantines(daemon).values())
    assert (status.quarantines, status.quarantined_blocks) == (len(pids), blocks)
    assert status.windows[0].tiers[0].in_flight_blocks == blocks


def battle(daemon, clients, stalls):
    """One wave: every other client is killed and the rest are stopped. Then the stopped ones go on,
    while `owner` holds all available blocks."""
    (killed, stopped) = clients[0::2], clients[1::2]
    assert daemon.primary().active_blocks >= doomed_client.RAW_BLOCKS * len(clients)
    for dead, still in zip(killed, stopped, strict=True):
        dead.send(signal.SIGKILL)
        still.send(signal.SIGSTOP)
    ended = time.monotonic()
    daemon.wait_until(lambda daemon: daemon.status().sessions == 0)
    after_lease = time.monotonic() - ended - LEASE_MS / 1000
    assert after_lease <= GRACE + stalls.longest(), f"sessions end {after_lease:.2f} s after their leases"
    wait_for_quarantines(daemon, {client.pid for client in stopped}, GRACE + stalls.longest())
    quarantined = quarantines(daemon)
    assert daemon.primary().active_blocks == 0

    with Client(daemon.channel, "owner") as owner:
        mine = [block.slot_index for block in owner.allocate(CAPACITY - sum(quarantined.values()))]
        kv = pool_view.map_pool(owner.pools()[0])
        for slot in mine:
            kv[slot] = slot + 0.5
        for client in stopped:
            client.send(signal.SIGCONT)
        for client in stopped:
            client.order("scribble")
        for client in stopped:
            told = client.answer()
            assert told["refused"] == "STALE_SESSION"
            assert 0 < len(told["slots"]) <= quarantined[client.pid]
            assert not set(told["slots"]) & set(mine), "the daemon handed out a slot that another client could write"
            assert (kv[told["slots"]] < 0).all(), "the client did not write"
        assert all((kv[slot] == slot + 0.5).all() for slot in mine), "a block that is in use has changed"
        assert quarantines(daemon) == quarantined, "the blocks of living clients stay quarantined"
        release(daemon, stopped, stalls)
    return sum(quarantined.values()), after_lease


def release(daemon, zombies, stalls):
    """Half of them acknowledge, and half die."""
    left = {client.pid for client in zombies}
    for number, client in enumerate(zombies):
        if number % 2:
            client.send(signal.SIGKILL)
        else:
            client.ask("acknowledge")
        left.remove(client.pid)
        wait_for_quarantines(daemon, left, GRACE + stalls.longest())


def test_clients_that_die_or_sleep_leave_nothing_behind(daemon):
    figures = Figures("clients")
    quarantined, latest = 0, 0.0
    with Stalls() as stalls:
        for wave in range(WAVES):
            with forked_clients(doomed_client.__file__, CLIENTS_IN_A_WAVE, wave * CLIENTS_IN_A_WAVE, f"unix:{daemon.unix_socket}",
                                LEASE_MS) as clients:
                blocks, after_lease = battle(daemon, clients, stalls)
            quarantined += blocks
            latest = max(latest, after_lease)
            assert daemon.primary().in_flight_blocks == 0
    assert quarantined >= WAVES * CLIENTS_IN_A_WAVE // 2 * doomed_client.RAW_BLOCKS
    check_afterwards(daemon)
    figures.tell(clients=WAVES * CLIENTS_IN_A_WAVE, quarantined_blocks=quarantined, latest_end_after_lease=f"{latest:.2f} s")
