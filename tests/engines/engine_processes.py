"""The programs of these tests: a pagodad with memory for the engines' caches, and vLLM engines."""

import json
import os
import pathlib
import re
import selectors
import signal
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
PAGODAD = pathlib.Path(os.environ.get("PAGODA_BIN", HERE.parents[1] / "build/release/bin")) / "pagodad"
ANSWER = "@@answer "
START_SECONDS = 300


class Daemon:
    """A pagodad in `folder`, with a memory budget and no cache of its own."""

    def __init__(self, folder, *, host="256MiB", disk=None, warm_restart=False, extra=None):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.endpoint = f"unix:{self.folder}/pagodad.sock"
        self.log = self.folder / "pagodad.log"
        memory = {"host": host, "warm_restart": warm_restart}
        if disk:
            memory["disk"] = {"path": str(self.folder / "disk"), "size": disk}
            (self.folder / "disk").mkdir(exist_ok=True)
        self.config = {"memory": memory, "server": {"unix_socket": str(self.folder / "pagodad.sock"), "grpc_address": "",
                                                    "http_address": "127.0.0.1:0"}} | (extra or {})
        self.process = None

    def start(self):
        path = self.folder / "pagodad.yaml"
        path.write_text(json.dumps(self.config))
        with open(self.log, "ab") as log:
            before = log.tell()
            self.process = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", PAGODAD, "--config", path], stdout=log, stderr=log)
        deadline = time.monotonic() + 60
        while not (ready := re.search(rb"pagodad is ready: [^\n]*HTTP on ([^\s,]+)", self.log.read_bytes()[before:])):
            assert self.process.poll() is None and time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.02)
        self.http = ready[1].decode()
        return self

    def kill(self):
        self.process.kill()
        self.process.wait()

    def signal(self, number):
        self.process.send_signal(number)

    def stop(self):
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.kill()

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        if self.config["memory"]["warm_restart"] and self.process.poll() is None:  # Otherwise the caches would outlive the daemon.
            import pagoda

            for cache in pagoda.list_caches(self.endpoint):
                pagoda.drop_cache(self.endpoint, cache.name, force=True)
        self.stop()


def connector(daemon, **extra):
    """The kv_transfer_config of CONNECTORS.md, with longer time limits for a machine with other
    work."""
    return {"kv_connector": "PagodaConnector", "kv_connector_module_path": "pagoda.vllm", "kv_role": "kv_both",
            "kv_connector_extra_config": {"endpoint": daemon.endpoint, "timeout": 10, **extra}}


class Vllm:
    """A vLLM engine in a process of its own."""

    def __init__(self, folder, model, *, kv_transfer_config=None, name="vllm", **options):
        options = {"model": str(model), "max_model_len": 1024, "num_gpu_blocks_override": 512, "block_size": 32, "seed": 0,
                   # Steps of other sizes add numbers in another order. In float32 this changes no
                   # token of these models.
                   "dtype": "float32",
                   **options}
        if kv_transfer_config is not None:
            options["kv_transfer_config"] = kv_transfer_config
        self.log = pathlib.Path(folder) / f"{name}.log"
        self._errors = open(self.log, "ab")
        self.process = subprocess.Popen([sys.executable, str(HERE / "vllm_child.py"), json.dumps(options)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=self._errors, start_new_session=True)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self.process.stdout, selectors.EVENT_READ)
        self._rest = b""
        self._answer(START_SECONDS)

    def _answer(self, seconds):
        deadline = time.monotonic() + seconds
        while True:
            while b"\n" in self._rest:
                line, self._rest = self._rest.split(b"\n", 1)
                if ANSWER.encode() in line:
                    answer = json.loads(line.split(ANSWER.encode(), 1)[1])
                    assert "error" not in answer, f"{answer['error']}; {self.log}:\n{self.tail()}"
                    return answer
                self._errors.write(line + b"\n")
            assert self._selector.select(max(deadline - time.monotonic(), 0)), f"no answer in {seconds} s; {self.log}:\n{self.tail()}"
            got = os.read(self.process.stdout.fileno(), 1 << 16)
            assert got, f"vLLM ended; {self.log}:\n{self.tail()}"
            self._rest += got

    def said(self):
        """All that it logged."""
        self._errors.flush()
        return self.log.read_text(errors="replace")

    def tail(self):
        return self.said()[-6000:]

    def send(self, **command):
        self.process.stdin.write(json.dumps(command).encode() + b"\n")
        self.process.stdin.flush()

    def ask(self, *, seconds=120, **command):
        self.send(**command)
        return self._answer(seconds)

    def answer(self, seconds=120):
        """The answer to a command that was sent."""
        return self._answer(seconds)

    def generate(self, prompts, max_tokens=16, *, seconds=600, adapter=None, logprobs=None, transfer=None, **extra):
        """`transfer`: the kv_transfer_params of the prompts."""
        return self.ask(seconds=seconds, do="generate", prompts=prompts, max_tokens=max_tokens, adapter=adapter, logprobs=logprobs,
                        transfer=transfer, extra=extra)

    def reset(self, connector=False):
        return self.ask(do="reset", connector=connector)["done"]

    def metrics(self):
        return self.ask(do="metrics")["metrics"]

    def close(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self._errors.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
