"""The Python package's examples and its README's tour, run as they are printed."""

import pathlib
import re
import signal
import subprocess
import sys

import pagoda
import pytest
from caches_daemon import CachesDaemon

FOLDER = pathlib.Path(__file__).resolve().parents[3] / "clients" / "python"
EXAMPLES = {
    "quickstart": ["103 tokens, 0 of them cached", "104 tokens, 103 of them cached", "102 tokens, 100 of them cached"],
    "late_router": ["  prompt 1000: 60 tokens in whole blocks cached, up to PRIMARY; the daemon finds 60",
                    "  prompt 2000: 28 tokens in whole blocks cached, up to PRIMARY; the daemon finds 28", "the router followed every change"],
    "route": ["before: 0 nodes have a part of the prompt", "after: node-0 has 48 tokens in tier PRIMARY"],
    "router": ["a prompt of 1s: 176 tokens in whole blocks by the index, 179 tokens cached"],
}


# These need a daemon whose clients open caches, and one is killed. They have their own tests.
OF_BROUGHT_CACHES = {"hashed_pages", "connector"}
# It runs inside TensorRT-LLM, which needs a GPU.
NEVER_RUN = {"tensorrt_llm_connector"}


def run(*command):
    """What a program prints; where it fails, what it printed."""
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_every_example_is_run_or_named():
    assert {path.stem for path in (FOLDER / "examples").glob("*.py")} == set(EXAMPLES) | OF_BROUGHT_CACHES | NEVER_RUN


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_prints_what_it_should(start_daemon, name):
    daemon = start_daemon(cache={"eviction_policy": "lru"})  # What stays cached is printed.
    for _ in range(2):  # The second run finds the blocks of the first, and resets the cache.
        printed = run(FOLDER / "examples" / f"{name}.py", f"unix:{daemon.unix_socket}")
        assert [line for line in EXAMPLES[name] if line not in printed] == []


def test_pages_that_hashes_name_are_found_after_their_client_and_the_daemon_were_killed(tmp_path):
    example = FOLDER / "examples" / "hashed_pages.py"
    assert len(example.read_text().splitlines()) <= 40
    with CachesDaemon(tmp_path, memory={"host": "64MiB", "warm_restart": True}) as daemon:
        killed = subprocess.run([sys.executable, example, daemon.endpoint], capture_output=True, text=True, timeout=60, check=False)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        assert killed.stdout.splitlines() == ["a new cache", "0 of 8 pages were cached", "stored; now this process is killed"]
        assert run(example, daemon.endpoint) == ["the cache is there", "8 of 8 pages were cached"]
        daemon.kill()
        daemon.start()
        assert run(example, daemon.endpoint) == ["the cache is there", "8 of 8 pages were cached"]
        pagoda.drop_cache(daemon.endpoint, "pages", force=True)


def test_the_example_of_a_connector_loads_what_it_saved(tmp_path):
    example = FOLDER / "examples" / "connector.py"
    assert len(example.read_text().splitlines()) <= 105
    with CachesDaemon(tmp_path) as daemon:
        for _ in range(2):
            assert run(example, daemon.endpoint) == ["turn 0: 0 of 50 prompt tokens loaded", "turn 1: 48 of 80 prompt tokens loaded",
                                                     "turn 2: 80 of 110 prompt tokens loaded"]


def test_the_example_of_a_connector_fails_without_a_daemon(tmp_path):
    done = subprocess.run([sys.executable, FOLDER / "examples" / "connector.py", f"unix:{tmp_path}/none"], capture_output=True, text=True,
                          timeout=60, check=False)
    assert done.returncode == 1 and "turn 0" not in done.stdout
    assert "no session" in done.stderr and done.stderr.splitlines()[-1].startswith("no daemon, or it refuses the cache")


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
