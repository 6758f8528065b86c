"""Every architecture, with an engine in its own process over the daemon's mapped pools. The tokens
are those of Hugging Face transformers, however the engine uses the cache."""

import json
import time

import pytest
from engine_process import MODEL, EngineProcess, run
from pagoda.v1 import admin_pb2

GOLDEN = MODEL.parent
# By folder of tests/golden: the folder that has the model's answers.
MODELS = {"llama3_tiny_f16_gguf": "llama3_tiny", "gpt_oss_tiny_mxfp4_gguf": "gpt_oss_tiny_mxfp4"} | {folder.parent.name: folder.parent.name for folder in GOLDEN.glob("*tiny*/cases.json")}
# In blocks of 16 tokens. If all windows of a model slide, a sequence has few blocks.
PLENTY, TOO_FEW, TOO_FEW_THAT_SLIDE = 64, 18, 5
SLIDES = {"mistral_tiny"}
# Almost as many tokens of the longest prompt's answer as TOO_FEW blocks can hold, so that the
# answer takes a while.
MORE_TOKENS = 80
ATTEMPTS = 5


@pytest.fixture(params=sorted(MODELS))
def model(request):
    return request.param


def cases_of(model):
    return json.loads((GOLDEN / MODELS[model] / "cases.json").read_text())["cases"]


def daemon_for(start_daemon, model, **tiers):
    return start_daemon(cache={"layers": None, "model_dir": str(GOLDEN / model), "tokens_per_block": 16, **tiers})


def too_few(model):
    return TOO_FEW_THAT_SLIDE if model in SLIDES else TOO_FEW


def sequences(daemon):
    return daemon.admin.ListSequences(admin_pb2.ListSequencesRequest(page_size=10), timeout=20).sequences


def wait_until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.0005)


def expect_goldens(daemon, model, *options):
    """Runs all prompts in an engine, checks that the tokens are the golden ones, and returns the
    answers."""
    cases = cases_of(model)
    requests = "\n".join(json.dumps({"id": i, "prompt": case["prompt"], "max_new_tokens": len(case["ids"])}) for i, case in enumerate(cases))
    status, out, err = run("--connect", f"unix:{daemon.unix_socket}", "--model", GOLDEN / model, "--requests", "-", "--compute", "fp32", *options,
                           stdin=requests)
    assert status == 0, err
    answers = {answer["id"]: answer for answer in map(json.loads, out.splitlines())}
    assert [answers[i]["tokens"] for i in range(len(cases))] == [case["ids"] for case in cases]
    return [answers[i] for i in range(len(cases))]


def test_all_prompts_at_once_and_again_from_the_cache(start_daemon, model):
    daemon = daemon_for(start_daemon, model, primary=PLENTY)
    at_once = ("--concurrency", 4, "--max-step-tokens", 48)
    expect_goldens(daemon, model, *at_once)
    for answer in expect_goldens(daemon, model, *at_once):
        assert answer["reused_tokens"] == answer["prompt_tokens"] - 1


def test_in_chunks_of_seven_tokens(start_daemon, model):
    expect_goldens(daemon_for(start_daemon, model, primary=PLENTY), model, "--max-step-tokens", 7)


def expect_goldens_interrupted(daemon, model):
    """While the answer to the longest prompt grows, another request with a higher priority comes,
    and the cache has no space for both."""
    first, second = cases_of(model)[3], cases_of(model)[2]
    alone = ("--local", "--model", GOLDEN / model, "--compute", "fp32", "--kv", "basic", "--output", "json",
             "--prompt-tokens", ",".join(map(str, first["prompt"])), "--max-new-tokens", MORE_TOKENS)
    status, out, err = run(*alone)
    assert status == 0, err
    expected = json.loads(out)["tokens"]
    assert expected[:len(first["ids"])] == first["ids"]
    with EngineProcess(daemon, "--compute", "fp32", "--concurrency", 2, "--max-step-tokens", 7, model=GOLDEN / model) as engine:
        for attempt in range(ATTEMPTS):
            wait_until(lambda: not sequences(daemon))
            engine.send(first["prompt"], MORE_TOKENS, id="first", cache_salt=str(attempt))
            wait_until(lambda: engine.has_answered() or any(row.computed_tokens > len(first["prompt"]) for row in sequences(daemon)))
            engine.send(second["prompt"], len(second["ids"]), id="second", cache_salt=str(attempt), priority=1)
            answers = {answer["id"]: answer for answer in (engine.answer(), engine.answer())}
            assert answers["first"]["tokens"] == expected
            assert answers["second"]["tokens"] == second["ids"]
            if answers["first"]["preemptions"] > 0:
                break
        assert engine.finish() == 0
    assert answers["first"]["preemptions"] > 0, f"in {ATTEMPTS} attempts the second request always came too late"


def test_preempted_and_computed_again(start_daemon, model):
    daemon = daemon_for(start_daemon, model, primary=too_few(model))
    expect_goldens_interrupted(daemon, model)


def test_offloaded_and_onboarded_in_the_middle(start_daemon, model):
    daemon = daemon_for(start_daemon, model, primary=too_few(model), secondary=PLENTY)
    expect_goldens_interrupted(daemon, model)
    assert sum(window.onboarded_blocks_total for window in daemon.status().windows) > 0
