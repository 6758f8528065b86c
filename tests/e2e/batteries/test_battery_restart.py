"""The daemon is killed under load, again and again. The next daemon serves the right bytes for its
tokens, and no client receives a block that a client of an earlier daemon can still write."""

import contextlib
import random
import signal
import time

import document_client
import documents
import pool_view
import pytest
from battery import Figures, Stalls, check_adds_up, check_afterwards, check_log, pick
from forked_clients import forked_clients
from pagoda_client import Client, handles
from pagoda.v1 import admin_pb2, mapping_pb2, types_pb2
from warm_daemon import WarmDaemon

KILLS = pick(short=4, full=50)
DRAINS = pick(short=1, full=5)
CLIENTS = 3
PRIMARY, SECONDARY = 256, 64
# The shortest and the longest load before the daemon ends, in seconds.
LEAST_LOAD, MOST_LOAD = 0.1, 0.6
# A writer's blocks are free at most so many seconds after the writer has died, or has acknowledged
# that it writes no more.
GRACE = 1.0


@pytest.fixture
def daemon(tmp_path):
    warm = WarmDaemon(tmp_path, primary=PRIMARY, secondary=SECONDARY)
    with contextlib.ExitStack() as stack:
        stack.callback(lambda: [path.unlink() for path in warm.files()])
        yield stack.enter_context(warm)


def kill(daemon):
    daemon.kill()


def drain(daemon):
    assert daemon.terminate() == 0, daemon.log.read_text()


class Cached:
    """How far each document is cached, and whether the cached bytes are its own. Runs while no
    client works."""

    def __init__(self, daemon):
        self.matched = []
        self.wrong = []
        with Client(daemon.connect(), "auditor") as auditor:
            views = {pool.tier: pool_view.map_pool(pool, mapping_pb2.MAP_ACCESS_READ) for pool in auditor.pools()}
            for document in range(documents.COUNT):
                tokens = documents.tokens(document)
                found = daemon.admin.InspectPrefix(admin_pb2.InspectPrefixRequest(tokens=tokens), timeout=20)
                self.matched.append(found.matched_tokens)
                known = documents.values(tokens)
                for inspected in found.blocks:
                    block = views[inspected.tier][inspected.block.slot_index]
                    values = known[inspected.token_start:inspected.token_start + inspected.token_count]
                    if not all((block[:, :, :, place, :] == value).all() for place, value in enumerate(values)):
                        self.wrong.append((document, inspected.token_start))
            assert auditor.match(tokens + [0]).matched_tokens == self.matched[-1]


def quarantined_writers(daemon):
    """The processes that keep slots in quarantine. All of them must be clients of earlier
    daemons."""
    listed = daemon.admin.ListQuarantines(admin_pb2.ListQuarantinesRequest(), timeout=20).quarantines
    assert all(quarantine.session_id == 0 for quarantine in listed), listed
    return {pid for quarantine in listed for pid in quarantine.writer_pids}


def check_new_daemon(daemon, epochs):
    """Checks that the epoch is new and that there are no sessions, sequences or pins. Returns the
    number of recovered blocks."""
    status = check_adds_up(daemon)
    assert status.epoch not in epochs
    assert (status.sessions, status.sequences, status.pins) == (0, 0, 0)
    epochs.add(status.epoch)
    return status.recovered_blocks


def kill_under_load(daemon, round_number, epochs, stalls):
    """One round. Returns how many blocks the next daemon found, and how many tokens matched in the
    round."""
    dice = random.Random(round_number)
    with forked_clients(document_client.__file__, CLIENTS, round_number * CLIENTS, f"unix:{daemon.unix_socket}") as clients:
        time.sleep(dice.uniform(LEAST_LOAD, MOST_LOAD))  # The clients already work: this is the time of the load.
        check_log(daemon)
        clients[0].send(signal.SIGSTOP)  # It notices the daemon's end long after the others.
        daemon.again(kill)
        recovered = check_new_daemon(daemon, epochs)
        pids = {client.pid for client in clients}
        assert quarantined_writers(daemon) == pids
        tier = daemon.primary()
        assert tier.free_blocks == 0 and tier.in_flight_blocks > 0, "a client of an earlier daemon can write to free blocks"
        clients[0].send(signal.SIGCONT)
        told = [client.ask("scribble") for client in clients]
        assert [client["wrong"] for client in told] == [[]] * CLIENTS
        cached = Cached(daemon)
        assert cached.wrong == []
        assert quarantined_writers(daemon) == pids
        for number, client in enumerate(clients):
            if (round_number + number) % 2:
                client.ask("acknowledge")
            else:
                client.send(signal.SIGKILL)
            pids.remove(client.pid)
            daemon.wait_until(lambda daemon: quarantined_writers(daemon) == pids, GRACE + stalls.longest())
        daemon.wait_until(lambda daemon: daemon.primary().in_flight_blocks == 0, GRACE + stalls.longest())
    return recovered, sum(client["matched"] for client in told)


def drain_and_find_all(daemon, round_number, epochs):
    """Clients work, then all is quiet. Returns how many blocks the next daemon found: all that were
    cached."""
    with forked_clients(document_client.__file__, CLIENTS, round_number * CLIENTS, f"unix:{daemon.unix_socket}"):
        pass  # The end of the block kills them.
    for session in daemon.admin.ListSessions(admin_pb2.ListSessionsRequest(), timeout=20).sessions:
        daemon.admin.EndSession(admin_pb2.EndSessionRequest(session_id=session.session_id), timeout=20)
    daemon.settle()
    before = Cached(daemon)
    blocks = daemon.cached()
    daemon.again(drain)
    recovered = check_new_daemon(daemon, epochs)
    after = Cached(daemon)
    assert (after.wrong, after.matched, recovered) == ([], before.matched, blocks)
    return recovered


def test_a_daemon_that_is_killed_under_load_serves_no_wrong_byte(daemon):
    figures = Figures("restart")
    epochs = {daemon.status().epoch}
    with Stalls() as stalls:
        rounds = [kill_under_load(daemon, number, epochs, stalls) for number in range(KILLS)]
    recovered, matched = zip(*rounds)
    assert sum(blocks > 0 for blocks in recovered) > 0.8 * KILLS, f"most daemons found no blocks: {recovered}"
    assert sum(matched) > 0, "no client matched another client's prefix"
    drained = [drain_and_find_all(daemon, KILLS + number, epochs) for number in range(DRAINS)]
    assert min(drained) > 0
    check_afterwards(daemon)
    figures.tell(kills=KILLS, blocks_recovered=sum(recovered), fewest=min(recovered), tokens_matched_under_load=sum(matched),
                 drains=DRAINS, blocks_found_after_them=sum(drained))


def test_the_audit_notices_a_wrong_byte(daemon):
    with Client(daemon.connect(), "writer") as client:
        (primary,) = [pool for pool in client.pools() if pool.tier == types_pb2.TIER_PRIMARY]
        kv = pool_view.map_pool(primary)
        tokens = documents.tokens(5)
        slots = [block.slot_index for block in handles(client.add(1, tokens).tables[0].blocks)]
        documents.write(kv, slots, documents.values(tokens), 0, len(tokens))
        client.commit(1, len(tokens))
        cached = Cached(daemon)
        assert cached.wrong == [] and cached.matched[5] == len(tokens) - len(tokens) % 4
        kv[slots[3], 1, 1, 1, 2, 7] += 1
        assert (5, 12) in Cached(daemon).wrong
