"""Full memory and full disks. A daemon that cannot start says why and leaves nothing behind. A
running daemon goes on."""

import contextlib
import errno
import mmap
import os
import re
import subprocess

import documents
import numpy as np
import pool_view
import pytest
from battery import check_afterwards, check_log, pick
from pagoda_client import Client
from pagoda.v1 import types_pb2
from small_disks import BoxedDaemon, SmallDisks
from warm_daemon import WarmDaemon

SHM = "/dev/shm"
PAGE_BYTES = 4096
ROUNDS = pick(short=1, full=20)


def boxed(tmp_path, disks, **options):
    folder = tmp_path / f"daemon-{len(list(tmp_path.iterdir()))}"
    folder.mkdir()
    return BoxedDaemon(folder, disks, **options)


def write_everywhere(client):
    """Writes to every slot of every tier. If memory were missing, the kernel would end this
    process."""
    for number, pool in enumerate(client.pools()):
        view = pool_view.map_pool(pool)
        view[...] = number + 1
        assert (view == number + 1).all()


@pytest.mark.parametrize("cache, what", [
    ({"primary": 4096}, "-p0"),
    ({"primary": 4096, "warm_restart": True}, "-p0"),
    ({"primary": 256, "secondary": 4096}, "-p0-secondary"),
    ({"primary": 256, "secondary": 4096, "warm_restart": True}, "-p0-secondary"),
    ({"primary": 2000, "warm_restart": True}, "-stamps"),
    ({"primary": 800, "secondary": 500, "warm_restart": True}, "-stamps-secondary"),
    ({"primary": 512, "warm_restart": True}, "-writers"),
], ids=["primary", "primary-kept", "secondary", "secondary-kept", "stamps", "stamps-secondary", "writers"])
def test_memory_that_is_too_small_is_named_and_nothing_is_left(tmp_path, cache, what):
    """The memory is taken in this order: pools, stamps, the writers' table."""
    with SmallDisks({SHM: "size=2200k"}) as disks:
        for _ in range(ROUNDS):
            daemon = boxed(tmp_path, disks, **cache)
            assert daemon.run_to_its_end() == 1, what
            log = daemon.log.read_text()
            refused = re.search(r"shared memory /pagoda-(\S+) needs \d+ bytes and \d+ are free: No space left on device", log)
            assert refused and refused[1].endswith(what), log
            check_log(daemon)
            assert disks.names(SHM) == [], what
            assert not daemon.unix_socket.exists()
        with boxed(tmp_path, disks, primary=256) as daemon:  # There is enough memory for this one.
            check_afterwards(daemon)


def test_memory_that_is_full_while_a_daemon_runs_does_not_stop_it(tmp_path):
    """Its own it took at the start."""
    with SmallDisks({SHM: "size=2200k"}) as disks, boxed(tmp_path, disks, primary=256, secondary=256) as daemon:
        disks.fill(SHM)
        with Client(daemon.channel) as client:
            write_everywhere(client)
            for number in range(60 * ROUNDS):  # More than the primary tier holds: blocks are offloaded.
                client.cache(number + 1, [number * 100 + token for token in range(30)])
            assert daemon.status().windows[0].offloaded_blocks_total > 100
        check_afterwards(daemon)


def test_a_cache_is_found_again_though_the_memory_is_full(tmp_path):
    with SmallDisks({SHM: "size=3200k"}) as disks, boxed(tmp_path, disks, primary=256, warm_restart=True) as daemon:
        ballast = disks.fill(SHM)
        for number in range(ROUNDS):
            with Client(daemon.channel) as client:
                client.cache(1, [number * 100 + token for token in range(40)])
            cached = daemon.cached()
            found, _ = daemon.again(lambda daemon: daemon.terminate())
            assert found == cached >= 10
        assert "ballast" in ballast.name and ballast.name in disks.names(SHM)
        check_afterwards(daemon)


def test_a_start_without_memory_leaves_what_the_last_run_kept(tmp_path):
    """The primary pool is adopted before the secondary one finds no space. With space for both
    pools, the stamps find none."""
    with SmallDisks({SHM: "size=3200k"}) as disks, boxed(tmp_path, disks, primary=256, warm_restart=True) as daemon:
        with Client(daemon.channel) as client:
            client.cache(1, list(range(40)))
        cached = daemon.cached()
        assert daemon.terminate() == 0
        kept = disks.names(SHM)
        for secondary, what in ((2000, "-p0-secondary"), (1200, "-stamps-secondary")):
            daemon.config["cache"]["secondary"] = secondary
            assert daemon.run_to_its_end() == 1
            assert f"{what} needs" in daemon.log.read_text(), daemon.log.read_text()
            assert disks.names(SHM) == kept
        daemon.config["cache"]["secondary"] = 0
        daemon.channels.clear()
        daemon.start()
        assert daemon.cached() == cached >= 10


class LoggingDaemon(BoxedDaemon):
    """One whose log is on a small disk, and begins with so much that its page is full soon."""

    def __init__(self, folder, disks, log_folder):
        super().__init__(folder, disks)
        self.log = disks.path(log_folder) / "pagodad.log"

    def spawn(self):
        with open(self.log, "wb", buffering=0) as log:
            log.write(b"#" * (PAGE_BYTES // 2) + b"\n")  # The rest of the page is for the lines of a start.
            self.process = subprocess.Popen(self.command(), stdout=log, stderr=log)
        return self


def log_a_line(daemon):
    """The end of a session whose client is silent is a line of the log."""
    silent = Client(daemon.channel, lease_ms=100)
    silent.allocate(9)
    daemon.wait_until(lambda daemon: daemon.primary().free_blocks == 64)


def test_a_log_that_is_full_does_not_stop_a_daemon(tmp_path):
    folder = tmp_path / "log"
    folder.mkdir()
    with SmallDisks({folder: "size=1m"}) as disks, LoggingDaemon(tmp_path, disks, folder) as daemon:
        ballast = disks.fill(folder)
        assert daemon.log.stat().st_size < PAGE_BYTES, "the lines of its start filled the page"
        for _ in range(60):
            log_a_line(daemon)
            if daemon.log.stat().st_size == PAGE_BYTES:
                break
        for _ in range(ROUNDS):
            assert daemon.log.stat().st_size == PAGE_BYTES, "the log is not full"
            log_a_line(daemon)
        check_afterwards(daemon)
        ballast.unlink()
        log_a_line(daemon)
        assert daemon.log.read_text().endswith("no client renewed the lease\n"), "the daemon logs again when there is space"


def test_a_log_that_nobody_reads_does_not_stop_a_daemon(tmp_path):
    """A pipe whose reader has died."""
    class PipedDaemon(WarmDaemon):
        def spawn(self):
            self.process = subprocess.Popen(self.command(), stdout=open(self.log, "wb"), stderr=subprocess.PIPE)
            self.process.stderr.close()
            return self

    with PipedDaemon(tmp_path, warm_restart=False) as daemon:
        log_a_line(daemon)
        check_afterwards(daemon)


@pytest.mark.parametrize("warm", [False, True])
def test_a_folder_that_takes_no_socket_is_named(tmp_path, warm):
    folder = tmp_path / "run"
    folder.mkdir()
    with SmallDisks({folder: "size=1m,nr_inodes=1"}) as disks:
        daemon = boxed(tmp_path, disks, warm_restart=warm)
        daemon.config["server"]["unix_socket"] = str(folder / "pagodad.sock")
        assert daemon.run_to_its_end() == 1
        log = daemon.log.read_text()
        assert str(folder) in log and os.strerror(errno.ENOSPC) in log, log
        assert daemon.files() == []


# --- Damage to a kept cache's files ---

def cut_in_half(path):
    os.truncate(path, path.stat().st_size // 2)


def empty(path):
    os.truncate(path, 0)


def remove(path):
    path.unlink()


def overwrite(path):
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
        memory[:] = np.random.default_rng(3).bytes(len(memory))


@pytest.mark.parametrize("harm", [cut_in_half, empty, remove, overwrite])
@pytest.mark.parametrize("kind", ["stamps", "pool"])
def test_a_kept_cache_that_was_harmed_is_not_served(tmp_path, kind, harm):
    daemon = WarmDaemon(tmp_path, primary=64)
    with contextlib.ExitStack() as stack:
        stack.callback(lambda: [path.unlink() for path in daemon.files()])
        stack.enter_context(daemon)
        tokens = documents.tokens(1)
        with Client(daemon.channel) as client:
            client.cache(1, tokens)
        cached = daemon.cached()
        assert daemon.again(lambda daemon: daemon.terminate())[0] == cached > 0, "without damage the cache is found"
        daemon.terminate()
        (harmed,) = [path for path in daemon.files() if ("-stamps" in path.name) == (kind == "stamps") and "-writers" not in path.name
                     and "-learned" not in path.name and not path.name.endswith(".lock")]
        harm(harmed)
        daemon.channels.clear()
        daemon.start()
        assert daemon.status().recovered_blocks == daemon.cached() == 0
        assert "warm restart: blocks recovered: 0" in daemon.log.read_text()
        check_log(daemon)
        with Client(daemon.channel) as client:
            assert client.match(tokens).matched_tokens == 0
            assert {pool.tier for pool in client.pools()} == {types_pb2.TIER_PRIMARY}
            write_everywhere(client)
        check_afterwards(daemon)
