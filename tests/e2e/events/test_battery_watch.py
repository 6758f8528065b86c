"""Subscribers disconnect, stall, resume, come late and filter, while clients change the cache a
thousand times a second or more. Every guarantee of the stream holds for each of them, and all have
the manager's tree."""

import collections
import contextlib
import itertools

import pytest
from battery import Figures, check_afterwards, pick
from watch_round import BLUE, ONE, RED, TWO, open_ground
from watch_validators import violations

ROUNDS = pick(short=20, full=200)
SECONDS = 0.8  # The traffic of a round.
# On a busy machine some rounds are void. If nearly all are void, the test proves nothing.
MOST_VOID = 2 * ROUNDS
# The least that the subscribers must have done, per round on average.
LEAST = {"cut": 1, "resumed": 3, "passed": 0.2, "snapshots": 5, "snapshots_again": 0.2, "marks": 5}


@pytest.fixture
def grounds(start_daemon, tmp_path_factory):
    """Two grounds that alternate: one window for all clients, and two windows for two tenants."""
    with contextlib.ExitStack() as running:
        folder = tmp_path_factory.mktemp("grounds")
        yield [running.enter_context(open_ground(start_daemon, folder / "one", ONE, [None])),
               running.enter_context(open_ground(start_daemon, folder / "two", TWO, [RED, BLUE]))]


def test_every_guarantee_holds_in_every_round(grounds):
    figures = Figures("watch")
    total = collections.Counter()
    trees = void = done = 0
    for seed, ground in zip(itertools.count(1), itertools.cycle(grounds)):
        result = ground.round(seed, SECONDS)
        found = violations(result.recording)
        assert not found, f"round {seed}: {len(found)} violations, the first ones:\n" + "\n".join(map(str, found[:10]))
        trees += result.compare_trees()
        if result.void:
            void += 1
            assert void <= MOST_VOID, f"{void} rounds had too little traffic, the last one {result.void}"
            continue
        done += 1
        total.update(result.figures)
        if done == ROUNDS:
            break
    rate = total.pop("rate") / ROUNDS
    figures.tell(rounds=ROUNDS, void=void, operations_a_second=f"{rate:.0f}", trees_compared=trees, **total)
    for name, least in LEAST.items():
        assert total[name] >= least * ROUNDS, f"{total[name]} in {ROUNDS} rounds: {name}"
    for ground in grounds:
        ground.close()
        check_afterwards(ground.daemon)
