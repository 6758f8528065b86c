"""Compares the disk tier's file with fio, in turns. `deploy/bench.sh tiers` runs it.

    /usr/bin/python3 tests/bench/tiers/tiers_bench.py DISK_BENCH [--folder FOLDER]
                     [--engine uring|threads] [--smoke] [ID...]

Needs 2.2 GB in FOLDER (/var/tmp by default), which chooses the disk. Prints one JSON object a line
for each figure whose id begins with one of the IDs (all, without IDs): medians of the rounds,
beside fio's. Without fio its numbers are null. Both sides use O_DIRECT and shared memory, with 32
requests in flight over io_uring, or 16 threads. The figures:

    disk_write_*, disk_read_*
        GB/s of payload. fio moves blocks of the same size in its own file of the same size, without
        a header beside a block and without checksums. Both files have been written once before.
    disk_cpu_s_per_gb*
        CPU seconds a GB of payload, half of it written and half read, with blocks of 128 KiB unless
        the id says 1m. fio's are without checksums.
    disk_scan, disk_scan_mb
        Slots a second, and MB/s of headers (a page a slot), that a start reads and checks in a file
        of 128 KiB blocks. fio reads 4 KiB at the same offsets of the same file, in the same order,
        and does not look at them.

    free_eviction
        Microseconds to evict a request of 64 tokens whose blocks have copies on disk. The
        comparison drops such a request in a cache without a disk. No disk is touched.
    memory_p99_disk_stalled
        Microseconds until a prefix of 16 blocks is onboarded from a second tier in memory, 99th
        percentile, while each write of the disk below takes a second more. The comparison is the
        same without a disk.

The disk's own caches stay as they are: both sides read a file that fits them from there.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import tempfile

from figure import show

DEPTH = 32
THREADS = 16
PAGE = 4096
SUPERBLOCKS = 2 * PAGE
BLOCKS = {"128k": 128 << 10, "1m": 1 << 20}
FILE_BYTES = 1 << 30
SMOKE_BYTES = 64 << 20
ROUNDS = 5
FIGURES_OF_THE_FILE = [f"disk_{what}" for what in ("write_128k", "write_1m", "read_128k", "read_1m", "cpu_s_per_gb", "cpu_s_per_gb_1m", "scan", "scan_mb")]


def slab_round(program, path, engine, block, count):
    run = subprocess.run([program, path, engine, str(block), str(count)], stdout=subprocess.PIPE, check=True, text=True)
    return {line["figure"]: line["value"] for line in map(json.loads, run.stdout.splitlines())}


def fio(path, engine, stride, count, *options, offset=0):
    """fio's account of `count` requests, one every `stride` bytes."""
    jobs = 1 if engine == "uring" else THREADS
    each = count // jobs
    how = ["--ioengine=io_uring", f"--iodepth={DEPTH}"] if engine == "uring" else ["--ioengine=psync"]
    command = [
        "fio", "--name=disk", f"--filename={path}", "--direct=1", "--mem=shm", "--output-format=json", "--group_reporting", *how,
        f"--numjobs={jobs}", f"--offset={offset}", f"--offset_increment={stride * each}", f"--size={stride * each}", f"--number_ios={each}", *options
    ]
    run = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    return json.loads(run.stdout)["jobs"][0]


def cpu_seconds(job):
    return (job["usr_cpu"] + job["sys_cpu"]) / 100 * job["job_runtime"] / 1000


def fio_round(path, slab_path, engine, block, count):
    write = fio(path, engine, block, count, "--rw=write", f"--bs={block}")
    read = fio(path, engine, block, count, "--rw=read", f"--bs={block}")
    scan = fio(slab_path, engine, PAGE + block, count, f"--rw=read:{block}", f"--bs={PAGE}", offset=SUPERBLOCKS)
    assert scan["read"]["total_ios"] // count == 1, "fio reads one page of each slot"
    return {
        "write": write["write"]["bw_bytes"] / 1e9,
        "read": read["read"]["bw_bytes"] / 1e9,
        "cpu_s_per_gb": (cpu_seconds(write) + cpu_seconds(read)) / (2 * block * count / 1e9),
        "scan": scan["read"]["iops"]
    }


def median(rounds, key):
    return statistics.median(each[key] for each in rounds) if rounds else None


def figures_of(name, ours, fios):
    """Id, value, unit, yardstick and its value, of one block size."""
    pages = "fio reads one page of each slot"
    figures = [(f"disk_write_{name}", "write", 1, "GB/s", "fio write"), (f"disk_read_{name}", "read", 1, "GB/s", "fio read"),
               ("disk_cpu_s_per_gb" + ("" if name == "128k" else f"_{name}"), "cpu_s_per_gb", 1, "s/GB", "fio, no checksums")]
    if name == "128k":
        figures += [("disk_scan", "scan", 1, "slots/s", pages), ("disk_scan_mb", "scan", PAGE / 1e6, "MB/s", pages)]
    for figure, key, scale, unit, yardstick in figures:
        theirs = median(fios, key)
        yield figure, median(ours, key) * scale, unit, yardstick, None if theirs is None else theirs * scale


def measure(args, folder, name, block):
    path, fio_path = (os.path.join(folder, file) for file in ("slab", "fio"))
    count = (SMOKE_BYTES if args.smoke else FILE_BYTES) // block
    has_fio = shutil.which("fio") is not None
    if has_fio:  # Writes the file once before the rounds.
        fio(fio_path, args.engine, block, count, "--rw=write", f"--bs={block}")
    ours, fios = [], []
    for _ in range(1 if args.smoke else ROUNDS):
        ours.append(slab_round(args.program, path, args.engine, block, count))
        if has_fio:
            fios.append(fio_round(fio_path, path, args.engine, block, count))
    for figure in figures_of(name, ours, fios):
        if not args.ids or figure[0].startswith(tuple(args.ids)):
            show(*figure)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="disk_bench")
    parser.add_argument("ids", nargs="*", help="measure only figures whose ids begin with one of these")
    parser.add_argument("--folder", default="/var/tmp", help="a folder on the disk to measure")
    parser.add_argument("--engine", choices=("uring", "threads"), default="uring")
    parser.add_argument("--smoke", action="store_true", help="one small round; its numbers say nothing")
    args = parser.parse_args()
    wanted = tuple(args.ids)
    ladder = os.path.join(os.path.dirname(os.path.abspath(args.program)), "ladder_bench")
    with tempfile.TemporaryDirectory(prefix="pagoda-tiers-", dir=args.folder) as folder:
        subprocess.run([ladder, folder, *(["--smoke"] if args.smoke else []), *wanted], check=True)
    for name, block in BLOCKS.items():
        if wanted and not any(figure.startswith(wanted) for figure in FIGURES_OF_THE_FILE):
            return
        with tempfile.TemporaryDirectory(prefix="pagoda-tiers-", dir=args.folder) as folder:
            measure(args, folder, name, block)


if __name__ == "__main__":
    main()
