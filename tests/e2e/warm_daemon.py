"""A pagodad whose cache outlives it (cache.warm_restart)."""

import pathlib
import re

import valid_stamps
from pagoda_client import Client
from pagoda_daemon import Daemon

SHM = pathlib.Path("/dev/shm")
FOUND = re.compile(r"warm restart: blocks recovered: (\d+) of (\d+)")


class WarmDaemon(Daemon):
    """Several daemons of one configuration, one after another. The test must remove the files that
    they leave in /dev/shm: files()."""

    def __init__(self, folder, **cache):
        super().__init__(folder, cache={"warm_restart": True, "model": {"name": "org/kept"}} | cache)

    def files(self):
        return sorted(SHM.glob(f"pagoda-{self.config['cache']['name']}-*"))

    def stamped(self):
        """Valid stamps."""
        return sum(valid_stamps.count_valid(path) for path in self.files() if "-stamps" in path.name)

    def cached(self):
        """Blocks, each once: a copy in a farther tier has no stamp."""
        return sum(tier.cached_blocks - tier.duplicate_blocks for tier in self.status().windows[0].tiers)

    def wait_until_stamped(self):
        self.settle()
        self.wait_until(lambda daemon: daemon.stamped() == daemon.cached())

    def again(self, end):
        """Ends the daemon by `end` and starts the next one. Returns how many blocks that one found,
        of how many stamps."""
        Client.opened_here.clear()  # Their sessions have ended with the daemon.
        for channel in self.channels:
            channel.close()
        self.channels.clear()
        end(self)
        self.start()
        return tuple(map(int, FOUND.search(self.log.read_text()).groups()))
