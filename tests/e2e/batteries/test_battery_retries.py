"""A retry storm: one in ten replies to batches that can be sent again is lost, and no operation
runs twice."""

import pagoda.client
import pytest
from battery import Figures, check_adds_up, check_afterwards, pick
from pagoda.v1 import events_pb2
from retry_storm import TRIES, Worker
from tcp_proxy import ReplyLosingProxy
from test_events import Watcher

OPERATIONS = pick(short=12_000, full=200_000)
UNNAMED_OPERATIONS = 1_600
SESSIONS = 8
LOSS = 0.10
LEAST_LOSS = 0.05


@pytest.fixture
def daemon(start_daemon):
    return start_daemon(cache={"primary": 2048}, events={"max_events": 4_000_000})


@pytest.fixture
def proxy(daemon):
    with ReplyLosingProxy(daemon.grpc_address, seed=4) as opened:
        yield opened


def storm(proxy, monkeypatch, operations, **worker):
    """The workers, after all have finished, with open sessions and a connection that loses nothing
    any more."""
    monkeypatch.setattr(pagoda.client, "TRIES", TRIES)
    workers = [Worker(proxy.address, seed, operations // SESSIONS, **worker) for seed in range(SESSIONS)]
    proxy.loss = LOSS
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    proxy.loss = 0.0
    return workers


def differences(daemon, workers):
    """The differences between the workers' view and the daemon's, or the errors of workers that
    failed."""
    if found := [difference for worker in workers for difference in worker.differences]:
        return found
    for worker in workers:
        worker.compare_with_the_daemon()
    found = [difference for worker in workers for difference in worker.differences]

    def compare(what, theirs, ours):
        if theirs != ours:
            found.append(f"{what}: the daemon has {theirs}, the clients {ours}")

    status = check_adds_up(daemon)
    (window,) = status.windows
    held = [worker.blocks() for worker in workers]
    compare("blocks in use", window.tiers[0].active_blocks, len(set.union(*held)))
    compare("sequences", status.sequences, sum(len(worker.expected) for worker in workers))
    # An answer that arrived named each of them. A batch that runs twice takes blocks that no client
    # knows.
    compare("uses of blocks", window.allocated_blocks_total + window.taken_over_blocks_total,
            len(set.union(*(worker.wire.uses for worker in workers))))
    log = LogTally(Watcher(daemon, from_revision=1).read_to(status.revision))
    compare("allocated raw blocks in events", log.created, sum(worker.allocated for worker in workers))
    compare("released raw blocks in events", log.released, sum(worker.given_back for worker in workers))
    compare("the last revision", status.revision, max(worker.client.revision for worker in workers))
    return found


class LogTally:
    """The raw blocks in the event log, which Watcher has checked for gaps, and the cached blocks at
    its end."""

    def __init__(self, events):
        self.created = self.released = 0
        self.cached = set()
        for event in events:
            if event.HasField("created"):
                self.created += len(event.created.block_ids)
            elif event.HasField("stored"):
                stored = {block.block_id for block in event.stored.blocks}
                assert not stored & self.cached, "a block was stored twice"
                self.cached |= stored
            elif event.HasField("removed"):
                self._remove(event.removed)

    def _remove(self, removed):
        if removed.reason == events_pb2.REMOVAL_REASON_RELEASED:
            self.released += len(removed.block_ids)
        else:
            assert self.cached >= set(removed.block_ids), "a block that was not cached is removed"
            self.cached -= set(removed.block_ids)


def test_a_storm_of_retries_applies_nothing_twice(daemon, proxy, monkeypatch):
    figures = Figures("retries")
    workers = storm(proxy, monkeypatch, OPERATIONS)
    assert differences(daemon, workers) == []
    operations, batches, again = (sum(counts) for counts in zip(*((worker.ran, worker.batches, worker.sent_again) for worker in workers)))
    assert operations >= OPERATIONS
    assert proxy.lost >= LEAST_LOSS * proxy.replies and again >= LEAST_LOSS * batches, "too few answers were lost"
    evicted = daemon.status().windows[0].evicted_blocks_total
    assert evicted > 0, "the cache was never full"
    for worker in workers:
        worker.close()
    last = daemon.status().revision
    assert len(LogTally(Watcher(daemon, from_revision=1).read_to(last)).cached) == daemon.primary().cached_blocks
    check_afterwards(daemon)
    figures.tell(operations=operations, batches=batches, replies_lost=proxy.lost, sent_again=again, evicted=evicted)


@pytest.mark.parametrize("kinds", [["append"], ["allocate", "give_back"], ["open", "free"], ["open", "fork", "free"], ["open", "reserve"],
                                   ["open", "truncate"]], ids="-".join)
def test_the_storm_notices_batches_that_run_twice(daemon, proxy, monkeypatch, kinds):
    """The same without retry_id."""
    workers = storm(proxy, monkeypatch, UNNAMED_OPERATIONS, kinds=kinds, named=False)
    found = differences(daemon, workers)
    for worker in workers:
        worker.close()
    again = sum(worker.sent_again for worker in workers)
    assert again > 0 and found, f"{again} batches were sent again, and no difference was found"
