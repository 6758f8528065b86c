"""pagoda-engine --local: the same tokens with every place of the KV and every backend, a chat that
reuses its conversation, and Ctrl-C."""

import json
import os
import pathlib
import pty
import re
import select
import signal
import subprocess
import time

import engine_process
import pytest
from engine_process import PAGODA_ENGINE

GOLDEN = pathlib.Path(os.environ["PAGODA_GOLDEN"]).resolve()
MODEL = GOLDEN / "qwen3_tiny"
EXPECTED = json.loads((MODEL / "expected.json").read_text())
WAYS = [(kv, backend) for kv in ("paged", "flat", "basic") for backend in ("auto", "cpu", "reference")]


def run_local(*arguments, stdin=""):
    """A whole run: (exit status, standard output, standard error)."""
    return engine_process.run("--local", *arguments, stdin=stdin)


def ids(tokens):
    return ",".join(map(str, tokens))


@pytest.mark.parametrize("kv, backend", WAYS)
def test_every_way_gives_the_golden_tokens(kv, backend):
    status, out, err = run_local("--model", MODEL, "--prompt-tokens", ids(EXPECTED["prompt"]), "--max-new-tokens", len(EXPECTED["ids"]),
                                 "--compute", "fp32", "--kv", kv, "--backend", backend)
    assert status == 0, err
    assert [int(word) for word in out.split()] == EXPECTED["ids"]
    assert f"kv {kv} of float32" in err
    assert ("reference" in err) == (backend == "reference")
    assert "contiguous kv" in err if kv == "basic" else "contiguous kv" not in err
    assert "64 prompt tokens, 0 reused (0.00 %); first token after" in err


@pytest.mark.parametrize("kv, backend", WAYS)
def test_a_gguf_file_gives_the_golden_tokens(kv, backend):
    model = GOLDEN / "llama3_tiny_q8_0_gguf"
    case = json.loads((model / "cases.json").read_text())["cases"][0]
    status, out, err = run_local("--model", model / "model.gguf", "--prompt-tokens", ids(case["prompt"]), "--max-new-tokens", len(case["ids"]),
                                 "--compute", "fp32", "--kv", kv, "--backend", backend, "-o", "json")
    assert status == 0, err
    assert json.loads(out)["tokens"] == case["ids"]


def test_a_chat_reuses_its_conversation():
    lines = "Hello there, who are you?\nAnd what do you remember?\n"
    answers = {}
    for kv in ("paged", "basic"):
        status, out, err = run_local("--model", MODEL, "--max-new-tokens", 16, "-o", "json", "--kv", kv, stdin=lines)
        assert status == 0, err
        answers[kv] = [json.loads(line) for line in out.splitlines()]
    assert [answer["tokens"] for answer in answers["paged"]] == [answer["tokens"] for answer in answers["basic"]]
    first, second = answers["paged"]
    assert first["reused_tokens"] == 0
    assert second["reused_tokens"] >= first["prompt_tokens"] - 1
    assert [answer["reused_tokens"] for answer in answers["basic"]] == [0, 0]
    for answer in answers["paged"]:
        assert answer["time_to_first_token_ms"] > 0
        assert answer["prompt_tokens_per_second"] > 0
        assert answer["decode_tokens_per_second"] > 0 or answer["generated_tokens"] == 1


def test_a_prompt_is_a_text_or_a_file(tmp_path):
    path = tmp_path / "prompt"
    path.write_text("Hello there")
    outputs = [run_local("--model", MODEL, "--max-new-tokens", 8, *prompt, stdin=stdin)[1]
               for prompt, stdin in ((("--prompt", "Hello there"), ""), (("--text-file", path), ""),
                                     (("--text-file", "-"), "Hello there"))]
    assert outputs[0] and outputs[0] == outputs[1] == outputs[2]


def test_mistakes_have_exit_codes():
    assert run_local()[0] == 2
    assert run_local("--model", MODEL, "--kv", "none")[0] == 2
    assert run_local("--model", MODEL, "--prompt-tokens", "1", "--prompt", "a")[0] == 2
    status, _, err = run_local("--model", MODEL / "none", "--prompt-tokens", "1")
    assert status == 1 and "INVALID_CHECKPOINT" in err
    status, _, err = run_local("--model", MODEL, "--prompt-tokens", "1", "--kv", "basic", "--backend", "cuda")
    assert status == 1 and "--kv basic computes in host memory" in err
    status, _, err = run_local("--model", MODEL, "--prompt-tokens", "1", "--context", "1")
    assert status == 1 and "--context" in err
    status, _, err = run_local("--model", GOLDEN / "llama3_tiny", "--prompt", "a")
    assert status == 1 and "tokenizer" in err


def read_until(fd, pattern, seconds=60):
    deadline = time.monotonic() + seconds
    seen = b""
    while not re.search(pattern, seen, re.DOTALL):
        assert select.select([fd], [], [], max(0, deadline - time.monotonic()))[0], seen[-1000:]
        seen += os.read(fd, 65536)


def test_ctrl_c_ends_an_answer_and_then_the_program():
    master, slave = pty.openpty()
    # With this system prompt the model repeats itself up to the end of the context.
    command = ["setpriv", "--pdeathsig", "KILL", PAGODA_ENGINE, "--local", "--model", MODEL, "--system", "Answer.", "--max-new-tokens", "100000",
               "--backend", "reference"]
    with subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, close_fds=True) as process:
        os.close(slave)
        try:
            read_until(master, rb"> ")
            for _ in range(2):  # Not only the first time.
                os.write(master, b"/reset\n")
                read_until(master, rb"/reset.*> ")
                os.write(master, b"Hello\n")
                read_until(master, rb"Hello\r\n.")
                process.send_signal(signal.SIGINT)
                read_until(master, rb"ended by stopped.*> ")
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 130
        finally:
            process.kill()
            os.close(master)
