"""`vllm serve` as a program, for prompts of token ids."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request

HTTP = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Served:
    """A server on a free port, from its first answer to the end of a `with` block. `options` are
    more of its command line."""

    def __init__(self, folder, name, model, environment, kv_transfer_config, *options, start_seconds=300):
        self.port = free_port()
        self.log = folder / f"{name}.log"
        # The program behind `vllm serve MODEL`. The command itself asks for a package vllm, and the
        # CPU build has another name.
        command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model), "--tokens-only", "--port",
                   str(self.port), "--enforce-eager", "--max-model-len", "1024", "--block-size", "32", "--num-gpu-blocks-override", "256", "--dtype", "float32",
                   "--kv-transfer-config", json.dumps(kv_transfer_config), *options]
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)
        try:
            self._wait(start_seconds)
        except BaseException:
            self.close()
            raise

    def _wait(self, seconds):
        deadline = time.monotonic() + seconds
        while True:
            try:
                if HTTP.open(f"http://127.0.0.1:{self.port}/health", timeout=2).status == 200:
                    return
            except OSError:
                assert self.process.poll() is None and time.monotonic() < deadline, self.log.read_text()[-6000:]
                time.sleep(0.5)

    def post(self, path, body, **headers):
        headers["Content-Type"] = "application/json"
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", json.dumps(body).encode(), headers)
        with HTTP.open(request, timeout=120) as answer:
            return json.loads(answer.read())

    def tokens(self, prompt, replica=None):
        """What follows the prompt. `replica`: which of a server's replicas computes it."""
        headers = {} if replica is None else {"X-data-parallel-rank": str(replica)}
        answer = self.post("/inference/v1/generate", {"token_ids": prompt, "sampling_params": {"max_tokens": 12, "temperature": 0}}, **headers)
        return answer["choices"][0]["token_ids"]

    def metric(self, name, replica=None):
        """The sum of the metric over all replicas, or its value for one."""
        text = HTTP.open(f"http://127.0.0.1:{self.port}/metrics", timeout=10).read().decode()
        labels = r"[^}]*" if replica is None else rf'[^}}]*engine="{replica}"[^}}]*'
        return sum(float(value) for value in re.findall(rf"^{re.escape(name)}(?:_total)?\{{{labels}\}} (\S+)$", text, re.M))

    def close(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
