"""The README's first steps: install the wheels, start the daemon, start vLLM twice. The second vLLM
answers from the first one's cache."""

import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys

import pytest
from served_vllm import Served

pytest.importorskip("vllm", reason="vLLM is not installed")

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("PAGODA_BIN", ROOT / "build/release/bin"))


def printed_flag():
    """The --kv-transfer-config that the README prints."""
    (text,) = re.findall(r"--kv-transfer-config '(.*?)'", (ROOT / "README.md").read_text(), re.S)
    return json.loads(text)


def test_a_second_vllm_answers_from_the_first_ones_cache(models, tmp_path):
    if shutil.which("patchelf") is None:
        pytest.skip("deploy/wheel.sh needs patchelf")
    installed = tmp_path / "installed"
    subprocess.run([ROOT / "deploy/wheel.sh", "--bin", BIN, "--out", tmp_path / "wheels"], check=True)
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", installed, *(tmp_path / "wheels").glob("*.whl")],
                   check=True)
    endpoint = f"unix:{tmp_path}/pagodad.sock"
    environment = os.environ | {"PYTHONPATH": str(installed), "PAGODA_ENDPOINT": endpoint, "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1",
                                "VLLM_NO_USAGE_STATS": "1"}
    # The configuration of `pagodad --memory 256MiB`, with other addresses: the default ones can be
    # in use.
    (tmp_path / "pagodad.json").write_text(json.dumps({"memory": {"host": "256MiB"}, "server": {
        "unix_socket": f"{tmp_path}/pagodad.sock", "grpc_address": "", "http_address": ""}}))
    daemon = subprocess.Popen([installed / "bin" / "pagodad", "--config", tmp_path / "pagodad.json"], env=environment,
                              stdout=subprocess.DEVNULL)
    served = []
    try:
        model, rng = models("qwen3"), random.Random(9)
        prompt = [rng.randrange(5, 500) for _ in range(300)]
        served.append(Served(tmp_path, "first", model, environment, printed_flag()))
        expected = served[0].tokens(prompt)
        assert served[0].metric("vllm:external_prefix_cache_hits") == 0
        served.append(Served(tmp_path, "second", model, environment, printed_flag()))
        assert served[1].tokens(prompt) == expected
        assert served[1].metric("vllm:external_prefix_cache_hits") == 288
        assert served[1].metric("vllm:pagoda_hit_tokens") == 288
        shown = subprocess.run([installed / "bin" / "pagodactl", "caches"], env=environment, capture_output=True, text=True, check=True).stdout
        assert "vllm-qwen3-" in shown
    finally:
        for one in served:
            one.close()
        daemon.terminate()
        daemon.wait(30)
