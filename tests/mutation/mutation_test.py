"""Plants the faults of manager/faults.def, one at a time, and demands that a test catches each.

    /usr/bin/python3 tests/mutation/mutation_test.py --faults manager/faults.def --sources manager --bin build/release/bin
        [--all] [--only NAME]

Without a fault every suite must pass; with one the suites run until one fails. --all runs every suite with every fault and
prints who catches what. Exit status 0 where every fault is planted and caught.
"""

import argparse
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys

FAULT = re.compile(r'^X\((\w+), "([^"]+)"\)$', re.MULTILINE)
PLANTED = re.compile(r"PAGODA_FAULT\((\w+)\)")

# The quickest first. The simulation and the property test do fewer seeds than in their own entries: a fault that only a long
# run meets is one that the tests nearly miss.
SUITES = {
    "manager_test": {},
    "manager_parts_test": {},
    "conformance_test": {},
    "property_test": {"PAGODA_PROPERTY_SEEDS": "40"},
    "sim_test": {"PAGODA_SIM_SEEDS": "120", "PAGODA_SIM_OPS": "2500", "PAGODA_SIM_WORKERS": "1",
                 "PAGODA_SIM_SHRINK_SECONDS": "0"},
}
TIMEOUT_SECONDS = 300


def run(binary, settings, fault):
    """Whether the suite passes with the fault planted, and the end of what it says."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PAGODA_")}
    environment |= settings | {"PAGODA_FAULT": fault}
    try:
        done = subprocess.run([binary], env=environment, capture_output=True, text=True, errors="replace", check=False,
                              timeout=TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        return False, f"still running after {TIMEOUT_SECONDS} s"
    return done.returncode == 0, (done.stdout + done.stderr)[-2000:]


def catchers(folder, fault, every):
    """The suites that fail with the fault: the first one, or with `every` all of them."""
    found = []
    for suite, settings in SUITES.items():
        passed, _ = run(folder / f"planted_{suite}", settings, fault)
        if passed:
            continue
        found.append(suite)
        if not every:
            break
    return found


def planted_in(sources):
    names = []
    for path in sorted(sources.glob("*.cc")) + sorted(sources.glob("*.h")):
        if path.name not in ("fault.h", "fault.cc"):
            names += PLANTED.findall(path.read_text())
    return names


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--faults", type=pathlib.Path, required=True)
    parser.add_argument("--sources", type=pathlib.Path, required=True)
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--only")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()

    faults = dict(FAULT.findall(options.faults.read_text()))
    planted = planted_in(options.sources)
    wrong = [f"{name}: in the table, and nowhere in the core" for name in faults if name not in planted]
    wrong += [f"{name}: in the core, and not in the table" for name in sorted(set(planted)) if name not in faults]
    if len(faults) < 20:
        wrong.append(f"only {len(faults)} faults")
    if options.only:
        faults = {options.only: faults[options.only]}

    with concurrent.futures.ThreadPoolExecutor(options.workers) as pool:
        # A suite that fails anyway catches nothing.
        sound = {suite: pool.submit(run, options.bin / f"planted_{suite}", settings, "")
                 for suite, settings in SUITES.items()}
        for suite, result in sound.items():
            passed, text = result.result()
            if not passed:
                wrong.append(f"{suite} fails without a fault:\n{text}")
        if not wrong:
            caught = {name: pool.submit(catchers, options.bin, name, options.all) for name in faults}
            for name, result in caught.items():
                found = result.result()
                print(f"{name:22} {' '.join(found) or 'NOT CAUGHT':60} {faults[name]}", flush=True)
                if not found:
                    wrong.append(f"{name}: no test notices that {faults[name]}")
    for line in wrong:
        print(line)
    print(f"{len(faults)} faults, {len(wrong)} problems")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
