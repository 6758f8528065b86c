"""Tests of the runner: it notices a fault that no suite catches, and every case in which a catch
would mean nothing."""

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import mutation_test

# Suites in a few lines of shell, run with a fault on.
PASSES = "exit 0"
RUNS = 'echo "[ RUN      ] ATest.Holds"'
FAILS = f'{RUNS}; echo "[  FAILED  ] ATest.Holds (0 ms)"; echo "[  FAILED  ] 1 test, listed below:"; exit 1'
STOPS = f'{RUNS}; echo "a.cc:1: broken invariant: rule 5 [x == y]" >&2; kill -ABRT $$'
DIES = f"{RUNS}; kill -SEGV $$"
NO_TEST = "exit 127"
OLD = f'{RUNS}; echo "broken invariant: PAGODA_FAULT names a fault of tests/mutation/faults"; kill -ABRT $$'
HANGS = f"{RUNS}; sleep 60"

NAMES = [f"Fault{letter}" for letter in "ABCDEFGHIJKLMNOPQRST"]


class Tree:
    """A checkout and its suites, as the runner sees them."""

    def __init__(self, root):
        self.root = root
        self.write("manager/core.cc", "".join(f"{name}();\n" for name in NAMES))
        for name in NAMES:
            self.write(f"tests/mutation/faults/{name}.patch", f"{name} is wrong\n\n--- a/manager/core.cc\n+++ b/manager/core.cc\n"
                       f"@@ -1 +1,2 @@\n+if (PAGODA_FAULT({name})) return;\n {name}();\n")
        self.write("tests/README.md", "".join(f"| `{name}` | {name} is wrong | `ATest.Holds` |\n" for name in NAMES))
        for suite in mutation_test.SUITES:
            self.suite(suite, PASSES)
        self.suite("conformance_test", FAILS)

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def replace(self, name, old, new):
        text = (self.root / name).read_text()
        assert old in text
        self.write(name, text.replace(old, new))

    def suite(self, name, with_a_fault, without=PASSES):
        """A suite, with a fault and without one. It can use $PAGODA_FAULT and its arguments,
        "$*"."""
        script = f'#!/bin/sh\nif [ -z "$PAGODA_FAULT" ]; then {without}; fi\n{with_a_fault}\n'
        self.write(f"bin/planted_{name}", script).chmod(0o755)

    def run(self, *arguments):
        return mutation_test.main(["--root", str(self.root), "--bin", str(self.root / "bin"), *arguments])


@pytest.fixture(name="planted")
def planted_fixture(tmp_path):
    return Tree(tmp_path)


def test_faults_that_the_named_test_catches_are_no_problem(planted, capsys):
    assert planted.run() == 0
    text = capsys.readouterr().out
    assert "20 faults, 0 problems" in text
    assert text.count("ATest.Holds fails") == 20


def test_a_fault_that_no_suite_notices_is_named(planted, capsys):
    planted.suite("conformance_test", f'[ "$PAGODA_FAULT" = FaultC ] && exit 0; {FAILS}')
    assert planted.run() == 1
    text = capsys.readouterr().out
    assert "FaultC: no test catches it" in text
    assert "20 faults, 1 problems" in text


def test_a_test_that_is_named_wrongly_is_found_and_another_one_proposed(planted, capsys):
    planted.suite("conformance_test", f'case "$*" in *filter*) exit 0;; esac; {FAILS}')
    assert planted.run("--fault", "FaultA") == 1
    assert "names ATest.Holds, which does not catch it; ATest.Holds fails" in capsys.readouterr().out


def test_the_last_suite_counts_too(planted):
    planted.suite("conformance_test", PASSES)
    assert planted.run("--fault", "FaultA") == 1
    planted.suite("property_test", FAILS)
    assert planted.run("--fault", "FaultA") == 0


@pytest.mark.parametrize("script, how", [
    (STOPS, "ATest.Holds stops at a broken invariant: rule 5\n"),
    (DIES, "ATest.Holds stops with SIGSEGV\n"),
])
def test_a_crash_in_a_test_is_a_catch_and_told(planted, capsys, script, how):
    planted.suite("conformance_test", script)
    assert planted.run() == 0
    assert how in capsys.readouterr().out


@pytest.mark.parametrize("script, how", [
    (NO_TEST, "ends with status 127"),
    (OLD, "does not know the fault"),
])
def test_a_run_that_ends_badly_without_a_failed_test_is_no_catch(planted, capsys, script, how):
    planted.suite("conformance_test", script)
    assert planted.run("--fault", "FaultA") == 1
    text = capsys.readouterr().out
    assert "FaultA: no test catches it" in text and how in text


def test_a_run_that_does_not_end_is_no_catch(planted):
    planted.suite("conformance_test", HANGS)
    outcome = mutation_test.run(planted.root / "bin", "conformance_test", "FaultA", timeout=0.5)
    assert not outcome.passed and not outcome.caught


@pytest.mark.parametrize("script", [FAILS, STOPS, NO_TEST])
def test_a_suite_that_fails_without_a_fault_catches_nothing(planted, capsys, script):
    planted.suite("manager_test", FAILS, without=script)
    assert planted.run() == 1
    text = capsys.readouterr().out
    assert "planted_manager_test without a fault" in text and "1/20" not in text


def test_a_suite_that_is_not_built_is_named(planted, capsys):
    (planted.root / "bin" / "planted_manager_test").unlink()
    assert planted.run() == 1
    assert "planted_manager_test: not built" in capsys.readouterr().out


@pytest.mark.parametrize("name, old, new, problem", [
    ("manager/core.cc", "FaultB();\n", "", "FaultB.patch: its lines are not in manager/core.cc any more"),
    ("tests/README.md", "FaultB is wrong", "FaultB is right", "says that FaultB is right, FaultB.patch that FaultB is wrong"),
    ("tests/README.md", "`FaultB`", "`FaultZ`", "FaultZ: in the list of tests/README.md, and"),
])
def test_what_plant_finds_wrong_is_a_problem(planted, capsys, name, old, new, problem):
    planted.replace(name, old, new)
    assert planted.run() == 1
    assert problem in capsys.readouterr().out


def test_few_faults_are_a_problem(planted, capsys):
    (planted.root / "tests/mutation/faults/FaultT.patch").unlink()
    assert planted.run() == 1
    assert "19 faults; 20 are the fewest" in capsys.readouterr().out


def test_every_suite_is_asked_where_all_are_wanted(planted, capsys):
    assert planted.run("--all", "--fault", "FaultA") == 0
    text = capsys.readouterr().out
    assert "conformance_test  ATest.Holds fails" in text and "property_test     passes" in text


def test_an_unknown_fault_is_refused(planted):
    assert planted.run("--fault", "Nothing") == 2
