"""The common parts of the batteries: their size, the checks after each of them, and the figures
that tests/README.md names.

PAGODA_LONG=1, which `deploy/test.sh --all` sets, asks for the full numbers. Without it each battery
does a small part of them.
"""

import ctypes
import os
import re
import struct
import threading
import time

from pagoda_client import Client

LONG = os.environ.get("PAGODA_LONG") == "1"

# Lines that the daemon, the C++ runtime or a sanitizer writes when the daemon is broken.
CRASH = re.compile(r"broken invariant|terminate called|Sanitizer|Segmentation|stack smashing|Assertion|F\d{4} ")


def pick(short, full):
    """How many: in the default run, and in the long one."""
    return full if LONG else short


def ask_for_short_slices():
    """Makes the time slices of this thread as short as those of the daemon (processor_share.h).
    It measures how long an answer takes, and a client on another machine waits for no processor
    that the daemon has. Nothing happens on other machines than x86-64, or before Linux 6.12."""
    system = ctypes.CDLL(None)
    attributes = ctypes.create_string_buffer(48)
    if os.uname().machine == "x86_64" and system.syscall(315, 0, attributes, 48, 0) == 0 and struct.unpack_from("Q", attributes, 24)[0]:
        struct.pack_into("Q", attributes, 24, 100_000)
        system.syscall(314, 0, attributes, 0)


def check_log(daemon):
    """The log tells of no crash."""
    log = daemon.log.read_text(errors="replace")
    assert not CRASH.search(log), log


def check_adds_up(daemon):
    """Each slot of each window and tier counts once. Returns the status."""
    status = daemon.status()
    for window in status.windows:
        for tier in window.tiers:
            assert tier.capacity_blocks == (tier.free_blocks + tier.cached_blocks + tier.active_blocks + tier.pinned_blocks +
                                            tier.in_flight_blocks), tier
    return status


def check_afterwards(daemon):
    """After all attackers have ended: the daemon lives and serves, nothing has leaked, and every
    block can be taken."""
    assert daemon.process.poll() is None, f"the daemon has ended:\n{daemon.log.read_text()}"
    daemon.check_nothing_leaked()
    for window in check_adds_up(daemon).windows:
        for tier in window.tiers:
            assert not (tier.active_blocks or tier.pinned_blocks or tier.in_flight_blocks), tier
    with Client(daemon.channel, "afterwards") as client:
        capacity = daemon.primary().capacity_blocks
        blocks = client.allocate(capacity)
        assert len({block.slot_index for block in blocks}) == capacity, "a slot was given to two blocks"
        client.free(blocks)
    check_log(daemon)


class Figures:
    """What a battery did, for the table: printed at its end, which pytest shows with -s."""

    def __init__(self, battery):
        self._battery = battery
        self._began = time.monotonic()

    def tell(self, **figures):
        seconds = time.monotonic() - self._began
        told = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in figures.items())
        print(f"\nbattery {self._battery} ({'full' if LONG else 'short'}): {told}; {seconds:.1f} s")


class Stalls:
    """How long this machine lets runnable processes wait. A bound in seconds has to allow this time
    in addition."""

    _NAP = 0.02

    def __init__(self):
        self._longest = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def longest(self):
        """The stalls so far, in seconds, twice: the daemon and the test can both have suffered
        them, one after the other."""
        return 2 * self._longest

    def _watch(self):
        while not self._over.is_set():
            before = time.monotonic()
            time.sleep(self._NAP)
            self._longest = max(self._longest, time.monotonic() - before - self._NAP)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *error):
        self._over.set()
        self._thread.join()
