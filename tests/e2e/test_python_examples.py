"""The Python package's examples and its README's tour, run as they are printed."""

import pathlib
import re
import subprocess
import sys

import pytest

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "clients" / "python"
EXAMPLES = {
    "quickstart": ["103 tokens, 0 of them cached", "104 tokens, 103 of them cached", "102 tokens, 100 of them cached"],
    "late_router": ["  prompt 1000: 60 tokens in whole blocks cached, up to PRIMARY; the daemon finds 60",
                    "  prompt 2000: 28 tokens in whole blocks cached, up to PRIMARY; the daemon finds 28", "the router followed every change"],
    "router": ["a prompt of 1s: 176 tokens in whole blocks by the index, 179 tokens cached"],
    "connector": ["turn 0: 0 of 50 prompt tokens loaded", "turn 1: 68 of 80 prompt tokens loaded",
                  "turn 2: 100 of 110 prompt tokens loaded"],
}


def run(*command):
    """What a program prints; where it fails, what it printed."""
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_every_example_is_run():
    assert {path.stem for path in (FOLDER / "examples").glob("*.py")} == set(EXAMPLES)


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_prints_what_it_should(daemon, name):
    for _ in range(2):  # The second time finds what the first one left, and starts anew.
        printed = run(FOLDER / "examples" / f"{name}.py", f"unix:{daemon.unix_socket}")
        assert [line for line in EXAMPLES[name] if line not in printed] == []


def test_the_readmes_tour_runs_as_printed(daemon, monkeypatch):
    tour = (FOLDER / "README.md").read_text().partition("## A five-minute tour")[2].partition("\n## ")[0]
    blocks = re.findall(r"^```python\n(.*?)^```$", tour, re.M | re.S)
    assert len(blocks) >= 5
    monkeypatch.setenv("PAGODA_ENDPOINT", f"unix:{daemon.unix_socket}")
    printed = run("-c", "\n".join(blocks))
    assert "53 True" in printed
    assert "48 tokens in whole blocks, at worst in tier PRIMARY" in printed
    assert "['UNKNOWN_PIN']" in printed
    assert any("blocks are reusable" in line for line in printed)
