"""The common parts of the tests of caches under keys: caches, pages whose bytes follow from their
keys, and times."""

import contextlib
import dataclasses
import hashlib
import pathlib
import re
import signal
import time
import urllib.request

import numpy as np
import pagoda
import valid_stamps
from engine_processes import Daemon
from pagoda import CacheIdentity
from pagoda.connector.keyed import Chain, KeyedPages
from pagoda.connector.keyed_options import KeyedOptions
from pagoda.connector.page_memory import ArrayPages

PAGE_BYTES = 4096
IDENTITY = CacheIdentity("org/model", revision="r1", dtype="bfloat16", layout="NHD", kernel_packing="plain")
TIMEOUT = 1.0
# Seconds that are added to a time limit, because the machine can have other work.
MARGIN = 0.75


def keys(count, salt=""):
    return [hashlib.sha256(f"{salt}{index}".encode()).digest() for index in range(count)]


def page_of(key, page_bytes=PAGE_BYTES):
    """The bytes that belong to a key: another page is never the same."""
    return np.frombuffer((key * (page_bytes // len(key) + 1))[:page_bytes], np.uint8)


def pages_of(names, page_bytes=PAGE_BYTES):
    return np.stack([page_of(name, page_bytes) for name in names])


def open_cache(endpoint, *, page_bytes=PAGE_BYTES, wait=20.0, host="1MiB", identity=IDENTITY, **options):
    changes = {key: options.pop(key) for key in list(options) if key in CacheIdentity.__dataclass_fields__}
    cache = KeyedPages("test", identity=dataclasses.replace(identity, **changes), page_bytes=page_bytes, tokens_per_page=16,
                       options=KeyedOptions(endpoint=endpoint, host=host, timeout=TIMEOUT, **options))
    if wait:
        assert cache.wait(wait), "the cache does not open"
    return cache


def chain(names, array=None, **changes):
    """All pages of the chain, in the array's order."""
    memory = None if array is None else ArrayPages(array)
    return Chain(names, memory=memory, pages=range(0 if array is None else len(array)), **changes)


def singles(names, array=None):
    """Each key for itself."""
    memory = None if array is None else ArrayPages(array)
    return [Chain((name,), memory=memory, pages=(index,)) for index, name in enumerate(names)]


@dataclasses.dataclass
class Timed:
    """Seconds of calls."""

    seconds: list

    def __str__(self):
        ordered = sorted(self.seconds)
        return f"p50 {1e3 * ordered[len(ordered) // 2]:.2f} ms, p99 {1e3 * ordered[int(len(ordered) * 0.99)]:.2f} ms, " \
               f"least {1e3 * ordered[0]:.2f} ms"

    @property
    def least(self):
        return min(self.seconds)

    @property
    def median(self):
        return sorted(self.seconds)[len(self.seconds) // 2]


def times(count, *calls):
    """The times of each of the calls. The calls alternate."""
    taken = [[] for _ in calls]
    for _ in range(count):
        for call, seconds in zip(calls, taken):
            started = time.perf_counter()
            call()
            seconds.append(time.perf_counter() - started)
    return [Timed(seconds) for seconds in taken]


def client_of(cache):
    """The client of the cache's open session."""
    return cache._shared._link.client


def wait_until(condition, seconds=30.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"the condition is not met in {seconds} s"
        time.sleep(0.02)


def stamped_pages(cache):
    """How many pages a daemon that starts now would find in the cache's memory."""
    return sum(valid_stamps.count_valid(path) for path in pathlib.Path("/dev/shm").glob(f"pagoda-{cache.name}-*-stamps*"))


def disk_is_idle(daemon):
    """Whether no block waits for the disk or is being written."""
    metrics = urllib.request.urlopen(f"http://{daemon.http}/metrics", timeout=30).read().decode()
    waiting = re.findall(r"^pagoda_disk_(?:waiting_backups|queued_orders|running_orders)\{.*\} (\d+)", metrics, re.MULTILINE)
    assert waiting, "the daemon has no disk"
    return not any(map(int, waiting))


@contextlib.contextmanager
def running(folder, **options):
    """A daemon whose caches leave nothing behind, even if the test has killed it."""
    with Daemon(folder, **options) as daemon:
        try:
            yield daemon
        finally:
            go_on(daemon)
            if daemon.process.poll() is not None:
                daemon.start()
            for cache in pagoda.list_caches(daemon.endpoint):
                pagoda.drop_cache(daemon.endpoint, cache.name, force=True)


def stop(daemon):
    """SIGSTOP; returns when none of its threads runs any more."""
    daemon.signal(signal.SIGSTOP)
    tasks = pathlib.Path(f"/proc/{daemon.process.pid}/task")
    wait_until(lambda: all((task / "stat").read_text().rsplit(")", 1)[1].split()[0] == "T" for task in tasks.iterdir()))


def go_on(daemon):
    daemon.signal(signal.SIGCONT)  # No effect if the daemon has ended.
