"""Demands that a test catches each of the faults that plant.py plants in the core.

    /usr/bin/python3 tests/mutation/mutation_test.py [--bin FOLDER] [--fault NAME] [--all]
                     [--suites SUITE ...] [--jobs N]

First every suite has to pass without a fault. Then, with each fault, the test that
tests/mutation/FAULTS.md names has to fail. If it does not, the suites run until one of them fails,
to find a test that the list could name. Exit status 0 if all faults are caught, and plant.py
--check finds nothing wrong with the patches and the list.
"""

import argparse
import concurrent.futures
import dataclasses
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import plant

ROOT = pathlib.Path(__file__).resolve().parents[2]
FEWEST_FAULTS = 20
TIMEOUT_SECONDS = 200

# The quickest first.
SUITES = ["ring_test", "conformance_test", "manager_test", "manager_prefixes_test", "manager_parts_test", "disk_core_test", "property_test", "sim_test", "exchange_sim_test"]

# Fewer seeds than in the suites' own entries: the tests nearly miss a fault that only a long run
# finds.
SETTINGS = {
    "ring_test": {},
    "conformance_test": {},
    "manager_test": {},
    "manager_prefixes_test": {},
    "manager_parts_test": {},
    "disk_core_test": {},
    "property_test": {"PAGODA_PROPERTY_SEEDS": "40"},
    "sim_test": {"PAGODA_SIM_SEEDS": "390", "PAGODA_SIM_OPS": "2500", "PAGODA_SIM_WORKERS": "1",
                 "PAGODA_SIM_SHRINK_SECONDS": "0"},
    "exchange_sim_test": {"PAGODA_EXCHANGE_SIM_SEEDS": "400", "PAGODA_SIM_WORKERS": "1"},
}

STARTED = re.compile(r"^\[ RUN      \] ([\w./]+)", re.MULTILINE)
FAILED = re.compile(r"^\[  FAILED  \] ([\w./]+\.[\w./]+)", re.MULTILINE)
BROKEN = re.compile(r"broken invariant: (.*?)(?: \[.*)?$", re.MULTILINE)
UNKNOWN_FAULT = "PAGODA_FAULT names a fault"  # What fault.cc says.


@dataclasses.dataclass
class Outcome:
    passed: bool
    test: str = ""  # The failed test. A run that ended badly without one has caught nothing.
    how: str = ""

    @property
    def caught(self):
        return not self.passed and self.test != ""


def outcome_of(status, text):
    """What a suite's exit status and its output mean."""
    if status == 0:
        return Outcome(passed=True)
    if UNKNOWN_FAULT in text:
        return Outcome(passed=False, how="the binary does not know the fault: build it anew")
    failed = FAILED.search(text)
    if failed:
        return Outcome(passed=False, test=failed[1], how="fails")
    started = STARTED.findall(text)
    broken = BROKEN.search(text)
    how = f"stops with {signal.Signals(-status).name}" if status < 0 else f"ends with status {status}"
    if broken:
        how = f"stops at a broken invariant: {broken[1]}"
    return Outcome(passed=False, test=started[-1] if started else "", how=how)


def run(folder, suite, fault, *arguments, timeout=TIMEOUT_SECONDS):
    """One run of a suite with one fault; "" is none. A run that does not end catches nothing."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PAGODA_", "GTEST_"))}
    environment |= SETTINGS[suite] | {"PAGODA_FAULT": fault}
    # A separate process group, because the simulation starts processes. They end with it.
    with subprocess.Popen([folder / f"planted_{suite}", *arguments], env=environment, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True) as process:
        try:
            text, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return Outcome(passed=False, how=f"still runs after {timeout} s")
    return outcome_of(process.returncode, text)


def first_catch(folder, suites, fault, *arguments):
    """The outcome of the first suite that catches the fault. Otherwise that of the last suite that
    did not pass, or a pass."""
    found = Outcome(passed=True)
    for suite in suites:
        outcome = run(folder, suite, fault, "--gtest_fail_fast", *arguments)
        if outcome.caught:
            return outcome
        if not outcome.passed:
            found = outcome
    return found


def judge(folder, suites, fault, listed):
    """What catches the fault, and what is wrong with that or None."""
    outcome = first_catch(folder, suites, fault, f"--gtest_filter={listed}") if listed else Outcome(passed=True)
    if outcome.caught:
        return f"{outcome.test} {outcome.how}", None
    outcome = first_catch(folder, suites, fault)
    if outcome.caught:
        line = f"{outcome.test} {outcome.how}"
        return line, f"{fault}: tests/mutation/FAULTS.md names {listed or 'no test'}, which does not catch it; {line}"
    reason = f" ({outcome.how})" if outcome.how else ""
    return "NOT CAUGHT" + reason, f"{fault}: no test catches it{reason}"


def suite_by_suite(folder, suites, fault):
    """A line for each suite: what it makes of the fault."""
    lines = ""
    for suite in suites:
        outcome = run(folder, suite, fault, "--gtest_fail_fast")
        lines += f"\n        {suite:17} {'passes' if outcome.passed else f'{outcome.test} {outcome.how}'.strip()}"
    return lines


def parse(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", metavar="FOLDER", type=pathlib.Path, help="where the planted_* programs are (build/release/bin)")
    parser.add_argument("--root", type=pathlib.Path, default=ROOT, help=argparse.SUPPRESS)
    parser.add_argument("--fault", metavar="NAME", help="only this one")
    parser.add_argument("--all", action="store_true", help="run every suite with every fault, and print each outcome")
    parser.add_argument("--suites", metavar="SUITE", nargs="+", choices=SETTINGS, default=SUITES,
                        help=f"of {', '.join(SETTINGS)}; by default {', '.join(SUITES)}")
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time (2)")
    options = parser.parse_args(argv)
    options.bin = options.bin or options.root / "build" / "release" / "bin"
    return options


def check_suites(pool, options):
    """Every suite passes without a fault. One that does not would catch everything."""
    missing = [suite for suite in options.suites if not (options.bin / f"planted_{suite}").is_file()]
    if missing:
        return [f"{options.bin}/planted_{suite}: not built" for suite in missing]
    problems = []
    runs = {suite: pool.submit(run, options.bin, suite, "") for suite in options.suites}
    for suite, result in runs.items():
        outcome = result.result()
        print(f"without a fault, {suite} {'passes' if outcome.passed else 'FAILS'}", flush=True)
        if not outcome.passed:
            problems.append(f"planted_{suite} without a fault: {outcome.test} {outcome.how}")
    return problems


def run_faults(pool, options, faults, listed):
    def one(fault):
        line, problem = judge(options.bin, options.suites, fault, listed.get(fault, ("", ""))[1])
        return fault, line + (suite_by_suite(options.bin, options.suites, fault) if options.all else ""), problem

    problems = []
    runs = [pool.submit(one, fault) for fault in faults]
    for number, done in enumerate(concurrent.futures.as_completed(runs), start=1):
        fault, line, problem = done.result()
        print(f"{number:3}/{len(faults)} {fault:20} {line}", flush=True)
        problems += [problem] if problem else []
    return problems


def main(argv=None):
    options = parse(argv)
    begin = time.monotonic()
    faults = plant.read_faults(options.root)
    listed = plant.read_list(options.root)
    problems = plant.check(options.root)
    if len(faults) < FEWEST_FAULTS:
        problems.append(f"{len(faults)} faults; {FEWEST_FAULTS} are the fewest")
    if options.fault:
        if options.fault not in faults:
            print(f"{options.fault}: no patch has this name")
            return 2
        faults = [options.fault]
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        broken = check_suites(pool, options)
        problems += broken or run_faults(pool, options, faults, listed)
    for problem in problems:
        print(problem)
    print(f"{len(faults)} faults, {len(problems)} problems, {time.monotonic() - begin:.0f} s")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
