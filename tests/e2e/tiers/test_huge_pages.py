"""Pools in huge pages: the daemon reports them, clients map them, and a start never fails because
there are none."""

import contextlib
import re

import pagoda
import pytest
from pagoda_client import Client
from pagoda_daemon import HTTP, Daemon
from pagodactl import run_message, run_ok
from pagoda.v1 import admin_pb2
from warm_daemon import WarmDaemon

# The primary tier has 4 MiB, the smallest size with two huge pages.
SIZE = {"primary": 4096}
ON_LOOPBACK = {"http_address": "127.0.0.1:0"}
NAMES = {1: "plain", 2: "transparent", 3: "2MiB", 4: "1GiB"}


@pytest.mark.parametrize("asked", ["auto", "2MiB", "1GiB", "off"])
def test_a_daemon_starts_with_what_there_is_and_says_so(start_daemon, asked):
    daemon = start_daemon(cache=SIZE | {"huge_pages": asked}, server=ON_LOOPBACK)
    told = daemon.status().windows[0].tiers[0].memory_pages
    pages = NAMES[told]
    assert asked != "off" or pages == "plain"
    assert daemon.told("status", admin_pb2.GetStatusResponse()).windows[0].tiers[0].memory_pages == told
    assert run_message(daemon, admin_pb2.GetStatusResponse(), "status").windows[0].tiers[0].memory_pages == told
    assert re.search(r" on host in .*pages", run_ok(daemon, "status"))
    metrics = HTTP.open(f"http://{daemon.http_address}/metrics").read().decode()
    samples = {name: float(value) for name, value in re.findall(r'^pagoda_pool_bytes\{cache="[^"]+",tier="primary",pages="(\w+)"\} (\S+)$',
                                                                      metrics, re.M)}
    assert samples == {name: 4 << 20 if name == pages else 0 for name in NAMES.values()}
    log = daemon.log.read_text()
    assert "the pools of tier primary: 4 MiB in" in log
    falls_short = asked in ("2MiB", "1GiB") and pages != asked
    assert (f"and cache.huge_pages is {asked}" in log) == falls_short
    with pagoda.connect(f"unix:{daemon.unix_socket}") as client, pagoda.connect(f"unix:{daemon.unix_socket}") as other:
        (pool,), (theirs,) = client.pools(), other.pools()
        assert pool.segments[0].pages == told and pool.segments[0].size_bytes == 4 << 20
        with client.sequence(range(8)) as sequence:
            for slot in sequence.table.slots:
                pool.writable_array[slot] = slot + 0.5
                assert (theirs.array[slot] == slot + 0.5).all()


def test_a_warm_restart_finds_its_blocks_in_other_pages(tmp_path):
    """The size of what is kept does not depend on its pages."""
    with contextlib.ExitStack() as stack:
        daemon = WarmDaemon(tmp_path, **SIZE)
        stack.callback(lambda: [path.unlink() for path in daemon.files()])
        stack.enter_context(daemon)
        Client(daemon.connect()).cache(1, range(8))
        daemon.wait_until_stamped()
        blocks = daemon.cached()
        for asked in ("2MiB", "off"):
            daemon.config["cache"]["huge_pages"] = asked
            assert daemon.again(Daemon.terminate) == (blocks, blocks)
