"""File systems of a few pages, in their own mount namespace, for daemons that run out of disk
space."""

import contextlib
import os
import pathlib
import subprocess

import pytest
from warm_daemon import WarmDaemon


class SmallDisks:
    """Mounts a tmpfs on each folder of `sizes`, with its options such as "size=1m", until the end
    of a `with` block. Other processes do not see the mounts. Needs root; without it the test is
    skipped."""

    def __init__(self, sizes):
        self._sizes = sizes

    def __enter__(self):
        mounts = [f"mount -t tmpfs -o {options} tmpfs {folder}" for folder, options in self._sizes.items()]
        script = " && ".join([*mounts, "echo mounted", "exec sleep infinity"])
        self._holder = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--propagation", "private", "sh", "-c", script],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if (said := self._holder.stdout.readline()) != "mounted\n":
            self.__exit__()
            pytest.skip(f"needs root, to mount file systems: {said.strip()}")
        return self

    def __exit__(self, *error):
        self._holder.kill()
        self._holder.communicate()

    def command(self, command):
        """The command, as it runs among these mounts."""
        return ["nsenter", f"--mount=/proc/{self._holder.pid}/ns/mnt", "--", *command]

    def path(self, folder):
        """Where this process finds a folder that is mounted there."""
        return pathlib.Path(f"/proc/{self._holder.pid}/root{folder}")

    def names(self, folder):
        return sorted(path.name for path in self.path(folder).iterdir())

    def fill(self, folder):
        """Takes what is free; returns the file that has it."""
        ballast = self.path(folder) / "ballast"
        with open(ballast, "ab", buffering=0) as file, contextlib.suppress(OSError):
            while file.write(bytes(4096)):
                pass
        free = os.statvfs(ballast)
        assert free.f_bavail == 0, free
        return ballast


class BoxedDaemon(WarmDaemon):
    """A daemon among small disks."""

    def __init__(self, folder, disks, **cache):
        super().__init__(folder, **{"warm_restart": False} | cache)
        self._disks = disks

    def command(self):
        return self._disks.command(super().command())
