"""Beam search over gRPC, HTTP, `pagodactl` and `pagoda-engine`: the answers and scores of Hugging
Face transformers, and no block is left behind."""

import json
import re

import pagodactl
import pytest
from engine_process import MODEL, EngineProcess
from pagoda_client import call_status, reason_of
from pagoda.v1 import engine_pb2
from test_generate import GOLDEN, start_engine
from test_openai import chat, complete, daemon, refused, start, stream  # noqa: F401 (fixtures)

CASES = json.loads((GOLDEN / "beams.json").read_text())["cases"]
NEAR = 2e-3


def options(case):
    """What pagoda-engine and gRPC call these options."""
    return {name: case[name] for name in ("beam_width", "length_penalty", "early_stopping", "stop_tokens")} | {"num_samples": len(case["ids"])}


@pytest.fixture
def engine(start_daemon):
    return start_engine(start_daemon)


def test_grpc_says_the_answers_when_the_search_has_ended(engine):
    daemon, stub = engine
    for case in CASES:
        request = engine_pb2.GenerateRequest(prompt_tokens=case["prompt"], max_new_tokens=case["max_new_tokens"], **options(case))
        said = [[] for _ in case["ids"]]
        for response in stub.Generate(request, timeout=120):
            for token in response.generated:
                said[token.sample].append(token.token)
        assert said == case["ids"]
        assert list(response.report.beam_scores) == pytest.approx(case["scores"], abs=NEAR)
        reasons = [engine_pb2.FINISH_REASON_STOP_TOKEN if ids[-1] in case["stop_tokens"] else engine_pb2.FINISH_REASON_LENGTH for ids in case["ids"]]
        assert list(response.report.finish_reasons) == reasons
    assert daemon.primary().active_blocks == 0
    with pytest.raises(Exception) as failure:
        list(stub.Generate(engine_pb2.GenerateRequest(prompt_tokens=[1], max_new_tokens=2, beam_width=2, max_draft_tokens=3), timeout=20))
    assert reason_of(call_status(failure.value)) == "INVALID_SAMPLING" and "max_draft_tokens" in failure.value.details()


def test_pagodactl_prints_answers_and_scores(engine):
    daemon, _ = engine
    case = next(case for case in CASES if not case["stop_tokens"] and case["beam_width"] == 4)
    arguments = ["generate", "--prompt-tokens", ",".join(map(str, case["prompt"])), "--max-new-tokens", str(case["max_new_tokens"]), "--beams", "4"]
    told = pagodactl.run_json(daemon, *arguments, "--samples", "4")
    samples = [[token["token"] for token in told["generated"] if token["sample"] == i] for i in range(4)]
    assert samples == case["ids"] and told["report"]["beam_scores"] == pytest.approx(case["scores"], abs=NEAR)
    printed = pagodactl.run_ok(daemon, *arguments, "--samples", "2")
    for i in range(2):
        score = re.search(rf"^sample {i}  {' '.join(map(str, case['ids'][i]))}  \(length, score (\S+)\)$", printed, re.MULTILINE)[1]
        assert float(score) == pytest.approx(case["scores"][i], abs=NEAR)
    best = pagodactl.run_json(daemon, *arguments)
    assert best["tokens"] == case["ids"][0] and len(best["report"]["beam_scores"]) == 1


def test_pagoda_engine_reads_the_options(start_daemon):
    cache = start_daemon(cache={"layers": None, "model_dir": str(MODEL), "tokens_per_block": 16, "primary": 256})
    with EngineProcess(cache) as engine:
        for case in CASES:
            engine.send(case["prompt"], case["max_new_tokens"], **options(case))
        answers = [engine.answer() for _ in CASES]
        assert engine.finish() == 0
    for case in CASES:
        answer = next(answer for answer in answers if answer["tokens"] == case["ids"][0])
        assert [sample["tokens"] for sample in answer["samples"]] == case["ids"]
        assert answer["beam_scores"] == pytest.approx(case["scores"], abs=NEAR)
    assert cache.primary().active_blocks == 0


def test_http_takes_the_names_of_vllm(daemon):  # noqa: F811
    for case in CASES:
        fields = {"prompt": case["prompt"], "max_tokens": case["max_new_tokens"], "n": len(case["ids"]), "best_of": case["beam_width"],
                  "use_beam_search": True, "length_penalty": case["length_penalty"], "early_stopping": case["early_stopping"],
                  "stop_token_ids": case["stop_tokens"], "ignore_eos": True, "return_token_ids": True}
        answer = complete(daemon, **fields)
        assert [choice["token_ids"] for choice in answer["choices"]] == case["ids"]
        assert answer["pagoda"]["beam_scores"] == pytest.approx(case["scores"], abs=NEAR)
    pieces = stream(daemon, "/v1/completions", **fields)
    said = [[] for _ in case["ids"]]
    for piece in pieces:
        for choice in piece["choices"]:
            said[choice["index"]] += choice.get("token_ids", [])
    assert said == case["ids"]
    assert pieces[-1]["pagoda"]["beam_scores"] == pytest.approx(case["scores"], abs=NEAR)
    assert len(chat(daemon, "Hello", n=3, max_tokens=4, use_beam_search=True)["choices"]) == 3
    error = refused(daemon, 400, prompt="Hello", n=2, use_beam_search=True, stop="a")
    assert error["param"] == "stop"
    assert daemon.primary().active_blocks == 0
