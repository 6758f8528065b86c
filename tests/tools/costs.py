"""Prints what a build and a run of the tests cost.

    /usr/bin/python3 tests/tools/costs.py [--build FOLDER] [--by folder|target]
                     [--target TARGET ...] [--tests LOG ...] [--rows N]

The build's cost is from ninja's log: the seconds that each step took when it last ran. With
--target only the steps that these targets need count. The tests' cost is by test, the longest
first, from what ctest printed. --rows limits each table (15). deploy/test.sh runs several steps at
a time, so a build or a run takes less time than its sum.
"""

import argparse
import collections
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
RESULT = re.compile(r"^ *\d+/\d+ +Test +#\d+: +(\S+) [ .]*(?:\*\*\*)?(Passed|Failed|Skipped|Timeout|Exception\S*|Not Run) +([\d.]+) sec", re.MULTILINE)


def read_ninja_log(text):
    """The seconds of each step, by the first of its outputs. The last run of a step counts."""
    steps = {}
    for line in text.splitlines():
        fields = line.split("\t")
        if line.startswith("#") or len(fields) != 5:
            continue
        begin, end, _, output, command = fields
        steps[output] = (int(begin), int(end), command)
    # Several outputs of one step share its times and its command.
    seconds, seen = {}, set()
    for output, step in steps.items():
        if step not in seen:
            seen.add(step)
            seconds[output] = (step[1] - step[0]) / 1000
    return seconds


def owner_of(output, build, by):
    """The source folder of a step, or its target."""
    path = pathlib.PurePath(output)
    if path.is_absolute():
        path = path.relative_to(build) if path.is_relative_to(build) else pathlib.PurePath(path.name)
    if path.parts[0] == "bin" or path.suffix in (".a", ".so"):
        return path.name if by == "target" else "links"
    folders = path.parts[:-1]
    if "CMakeFiles" not in folders:
        return folders[0] if folders else "others"
    place = folders.index("CMakeFiles")
    if by == "target":
        return next((folder.removesuffix(".dir") for folder in folders if folder.endswith(".dir")), "others")
    return "/".join(folders[:place]) or "others"


def needed_by(build, targets):
    listing = subprocess.run(["ninja", "-C", str(build), "-t", "inputs", *targets], capture_output=True, text=True, check=True)
    return set(listing.stdout.split("\n")) | set(targets)


def build_rows(steps, build, by="folder"):
    """(seconds, steps, owner), the most expensive first."""
    sums = collections.defaultdict(lambda: [0.0, 0])
    for output, seconds in steps.items():
        row = sums[owner_of(output, build, by)]
        row[0] += seconds
        row[1] += 1
    return sorted(((seconds, count, owner) for owner, (seconds, count) in sums.items()), reverse=True)


def test_rows(text):
    """(seconds, test, outcome), the longest first. The last run of a test counts."""
    results = {name: (float(seconds), outcome) for name, outcome, seconds in RESULT.findall(text)}
    return sorted(((seconds, name, outcome) for name, (seconds, outcome) in results.items()), reverse=True)


def table(rows, most):
    for row in rows[:most]:
        print(row)
    if len(rows) > most:
        print(f"     ... and {len(rows) - most} more")


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", metavar="FOLDER", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--by", choices=["folder", "target"], default="folder", help="what a row of the build is (folder)")
    parser.add_argument("--target", metavar="TARGET", nargs="+", default=[], help="count only what these targets need")
    parser.add_argument("--tests", metavar="LOG", nargs="+", type=pathlib.Path, default=[], help="files with ctest's output")
    parser.add_argument("--rows", type=int, default=15, help="rows of each table (15)")
    options = parser.parse_args(argv)
    build = options.build.resolve()
    log = build / ".ninja_log"
    if log.is_file():
        steps = read_ninja_log(log.read_text())
        if options.target:
            needed = needed_by(build, options.target)
            steps = {output: seconds for output, seconds in steps.items() if output in needed}
        rows = build_rows(steps, build, options.by)
        print(f"The build: {len(steps)} steps, {sum(steps.values()):.0f} s one after another")
        table([f"  {seconds:7.1f} s  {count:4} steps  {owner}" for seconds, count, owner in rows], options.rows)
    text = "".join(path.read_text(errors="replace") for path in options.tests)
    rows = test_rows(text)
    if options.tests:
        print(f"The tests: {len(rows)} tests, {sum(row[0] for row in rows):.0f} s one after another")
        table([f"  {seconds:7.1f} s  {name}{'' if outcome == 'Passed' else f' ({outcome.lower()})'}" for seconds, name, outcome in rows], options.rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
