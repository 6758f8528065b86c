"""The README's way in: install the wheels, start the daemon, start vLLM twice. The second one answers from the first one's cache."""

import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request

import pytest

pytest.importorskip("vllm", reason="vLLM is not installed")

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("PAGODA_BIN", ROOT / "build/release/bin"))
HTTP = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def printed_flag():
    """The --kv-transfer-config that the README prints."""
    (text,) = re.findall(r"--kv-transfer-config '(.*?)'", (ROOT / "README.md").read_text(), re.S)
    return json.loads(text)


class Served:
    """`vllm serve` on a free port, for prompts of token ids."""

    def __init__(self, folder, name, model, environment):
        self.port = free_port()
        self.log = folder / f"{name}.log"
        # What `vllm serve MODEL` runs: the command itself asks for a package vllm, and the build for CPUs has another name.
        command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model), "--tokens-only", "--port",
                   str(self.port), "--enforce-eager", "--max-model-len", "1024", "--block-size", "32", "--num-gpu-blocks-override", "256", "--dtype", "float32",
                   "--kv-transfer-config", json.dumps(printed_flag())]
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)
        deadline = time.monotonic() + 300
        while True:
            try:
                if HTTP.open(f"http://127.0.0.1:{self.port}/health", timeout=2).status == 200:
                    return
            except OSError:
                assert self.process.poll() is None and time.monotonic() < deadline, self.log.read_text()[-6000:]
                time.sleep(0.5)

    def post(self, path, body):
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", json.dumps(body).encode(), {"Content-Type": "application/json"})
        with HTTP.open(request, timeout=120) as answer:
            return json.loads(answer.read())

    def tokens(self, prompt):
        answer = self.post("/inference/v1/generate", {"token_ids": prompt, "sampling_params": {"max_tokens": 12, "temperature": 0}})
        return answer["choices"][0]["token_ids"]

    def metric(self, name):
        text = HTTP.open(f"http://127.0.0.1:{self.port}/metrics", timeout=10).read().decode()
        return sum(float(value) for value in re.findall(rf"^{re.escape(name)}(?:_total)?\{{[^}}]*\}} (\S+)$", text, re.M))

    def close(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


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
    # As `pagodad --memory 256MiB`, but for the addresses: somebody may use the daemon's own.
    (tmp_path / "pagodad.json").write_text(json.dumps({"memory": {"host": "256MiB"}, "server": {
        "unix_socket": f"{tmp_path}/pagodad.sock", "grpc_address": "", "http_address": ""}}))
    daemon = subprocess.Popen([installed / "bin" / "pagodad", "--config", tmp_path / "pagodad.json"], env=environment,
                              stdout=subprocess.DEVNULL)
    served = []
    try:
        model, rng = models("qwen3"), random.Random(9)
        prompt = [rng.randrange(5, 500) for _ in range(300)]
        served.append(Served(tmp_path, "first", model, environment))
        expected = served[0].tokens(prompt)
        assert served[0].metric("vllm:external_prefix_cache_hits") == 0
        served.append(Served(tmp_path, "second", model, environment))
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
