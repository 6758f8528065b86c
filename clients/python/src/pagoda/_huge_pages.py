"""Prepares the mapping of a pool in huge pages: proto/pagoda/v1/types.proto, MemoryPages."""

import mmap
import os
import pathlib
from collections.abc import Iterator

import grpc

from pagoda.errors import CannotMap, Details
from pagoda.values import MemoryPages

_CGROUPS = pathlib.Path("/sys/fs/cgroup")
_CGROUP_SIZES = {MemoryPages.HUGE_2MIB: "2MB", MemoryPages.HUGE_1GIB: "1GB"}
_NO_LIMIT = 1 << 60  # Cgroups of version 1 have a number beyond this if there is no limit.
# madvise(2), Linux 5.14. The standard library does not name these.
_POPULATE_READ = 22
_POPULATE_WRITE = 23


def _limit_files(size: str, cgroups: str, root: pathlib.Path) -> Iterator[pathlib.Path]:
    """The files that can limit a process's huge pages of one size: those of its cgroup and of the
    cgroups above it. `cgroups` is its /proc/PID/cgroup."""
    for line in cgroups.splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers not in ("", "hugetlb"):
            continue
        top = root / controllers
        folder = top / path.strip("/")
        name = f"hugetlb.{size}.limit_in_bytes" if controllers else f"hugetlb.{size}.max"
        for one in (folder, *folder.parents):
            yield one / name
            if one == top:
                break


def is_limited(pages: MemoryPages, cgroups: str, root: pathlib.Path = _CGROUPS) -> bool:
    """Whether a cgroup can refuse huge pages to a process when it touches them."""
    for file in _limit_files(_CGROUP_SIZES[pages], cgroups, root):
        try:
            limit = file.read_text().strip()
        except OSError:
            continue
        if limit != "max" and int(limit) < _NO_LIMIT:
            return True
    return False


def prepare(mapped: mmap.mmap, pages: MemoryPages, writable: bool) -> None:
    """Requests transparent huge pages. If a cgroup could refuse pages of the kernel's pool later,
    which would be a SIGBUS, touches them all now.

    Errors: CannotMap (RESOURCE_EXHAUSTED) if the cgroup refuses pages now.
    """
    if pages == MemoryPages.TRANSPARENT:
        try:
            mapped.madvise(mmap.MADV_HUGEPAGE)
        except (OSError, AttributeError):  # The kernel has none: plain pages work too.
            return
    if pages not in _CGROUP_SIZES or not is_limited(pages, pathlib.Path("/proc/self/cgroup").read_text()):
        return
    try:
        mapped.madvise(_POPULATE_WRITE if writable else _POPULATE_READ)
    except OSError as error:
        raise CannotMap(Details(grpc.StatusCode.RESOURCE_EXHAUSTED, f"a cgroup of this process refuses the pool's huge pages: "
                                f"{os.strerror(error.errno or 0)}; raise its limit of hugetlb.{_CGROUP_SIZES[pages]}, or start the daemon with "
                                "cache.huge_pages: off")) from None
