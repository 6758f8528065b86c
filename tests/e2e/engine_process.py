"""A pagoda-engine of the test's own: requests go in as lines, answers come out with a deadline."""

import json
import os
import pathlib
import queue
import signal
import subprocess
import threading
import time

PAGODA_ENGINE = pathlib.Path(os.environ["PAGODA_BIN"]) / "pagoda-engine"
MODEL = pathlib.Path(os.environ["PAGODA_GOLDEN"]).resolve() / "qwen3_tiny"
ANSWER_SECONDS = 120


def run(*arguments, stdin=""):
    """A whole run of the program: (exit status, standard output, standard error)."""
    done = subprocess.run([PAGODA_ENGINE, *map(str, arguments)], input=stdin, capture_output=True, text=True, timeout=ANSWER_SECONDS)
    return done.returncode, done.stdout, done.stderr


class EngineProcess:
    """pagoda-engine --requests - at a daemon. The end of a `with` block kills it if it still
    runs."""

    def __init__(self, daemon, *arguments, endpoint=None, model=MODEL):
        command = [PAGODA_ENGINE, "--connect", endpoint or f"unix:{daemon.unix_socket}", "--model", model, "--requests", "-", *arguments]
        # If this process is killed, the kernel kills the engine too.
        self.process = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *map(str, command)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1)
        self._answers = queue.Queue()
        self._said = []
        self._threads = [threading.Thread(target=self._read_answers, daemon=True),
                         threading.Thread(target=lambda: self._said.extend(self.process.stderr), daemon=True)]
        for thread in self._threads:
            thread.start()

    def _read_answers(self):
        for line in self.process.stdout:
            self._answers.put(json.loads(line))

    @property
    def said(self):
        """What it has told people so far."""
        return "".join(self._said)

    def send(self, prompt, max_new_tokens, **fields):
        print(json.dumps({"prompt": prompt, "max_new_tokens": max_new_tokens, **fields}), file=self.process.stdin, flush=True)

    def answer(self, seconds=ANSWER_SECONDS):
        try:
            return self._answers.get(timeout=seconds)
        except queue.Empty:
            raise AssertionError(f"no answer in {seconds} s; the engine said:\n{self.said}") from None

    def has_answered(self):
        return not self._answers.empty()

    def wait_for_answer(self, seconds):
        """Returns when an answer is there, or the time is over."""
        deadline = time.monotonic() + seconds
        while not self.has_answered() and time.monotonic() < deadline:
            time.sleep(0.002)

    def generate(self, prompt, max_new_tokens, **fields):
        self.send(prompt, max_new_tokens, **fields)
        return self.answer()

    def wait_until_said(self, text, seconds=60):
        deadline = time.monotonic() + seconds
        while text not in self.said:
            assert time.monotonic() < deadline, f"it did not print {text!r} in {seconds} s, but:\n{self.said}"
            time.sleep(0.02)

    def kill(self):
        """kill -9: no session is closed."""
        self.process.kill()
        self.process.wait()
        for thread in self._threads:
            thread.join()

    def stop(self):
        """SIGSTOP: it lives and does nothing."""
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self):
        self.process.send_signal(signal.SIGCONT)

    def finish(self, seconds=60):
        """No more requests: the exit status."""
        self.process.stdin.close()
        return self.wait(seconds)

    def terminate(self, seconds=60):
        """SIGTERM: the exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.wait(seconds)

    def wait(self, seconds):
        status = self.process.wait(seconds)
        for thread in self._threads:
            thread.join()
        return status

    def __enter__(self):
        return self

    def __exit__(self, *error):
        if error[0] is not None:
            print(self.said)
        self.kill()
