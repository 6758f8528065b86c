"""LoRA adapters over gRPC, HTTP, `pagodactl`, `pagoda-engine`, also with `--local`: the answers of
Hugging Face's peft, and prefixes of their own, also after a warm restart."""

import contextlib
import json
import os
import pathlib
import shutil

import pagodactl
import pytest
from engine_process import MODEL, EngineProcess
from pagoda_client import call_status, reason_of
from pagoda.v1 import engine_pb2, engine_pb2_grpc, types_pb2
from test_engine_local import run_local
from test_generate import generate
from test_openai import connect, post
from warm_daemon import WarmDaemon

ADAPTERS = pathlib.Path(os.environ["PAGODA_GOLDEN"]).resolve() / "adapters"
PATHS = {"all": ADAPTERS / "qwen3_all", "attention": ADAPTERS / "qwen3_attention"}
CASES = {name: json.loads((path / "cases.json").read_text())["cases"] for name, path in PATHS.items()}
CASES[""] = json.loads((MODEL / "cases.json").read_text())["cases"]
# An adapter in bf16 would otherwise be multiplied in bf16.
SECTION = {"model_dir": str(MODEL), "compute": "fp32", "adapters": [{"name": name, "path": str(path)} for name, path in PATHS.items()]}


@pytest.fixture
def daemon(start_daemon):
    return start_daemon(engine=SECTION, cache={"layers": None, "primary": 1024}, server={"http_address": "127.0.0.1:0"})


@pytest.fixture
def stub(daemon):
    return engine_pb2_grpc.EngineServiceStub(daemon.engine_channel)


def refusal(stub, **fields):
    with pytest.raises(Exception) as failure:
        list(stub.Generate(engine_pb2.GenerateRequest(prompt_tokens=[1, 2], max_new_tokens=2, **fields), timeout=20))
    return reason_of(call_status(failure.value)), failure.value.details()


def test_grpc_gives_peft_s_answers_and_each_adapter_its_own_prefixes(daemon, stub):
    for again in (False, True):
        for name, cases in CASES.items():
            for case in cases:
                tokens, report = generate(stub, case["prompt"], len(case["ids"]), adapter=name)
                assert tokens == case["ids"], name
                assert not again or report.reused_tokens == len(case["prompt"]) - 1
    # One prompt for all of them.
    prompt = list(range(100, 150))
    for reused in (0, len(prompt) - 1):
        for name in CASES:
            assert generate(stub, prompt, 1, adapter=name)[1].reused_tokens == reused, name
    assert daemon.primary().active_blocks == 0


def test_grpc_refuses_other_names_and_ids(stub):
    reason, details = refusal(stub, adapter="nothing")
    assert reason == "UNKNOWN_ADAPTER" and "'nothing'" in details
    for fields in ({}, {"adapter": "all"}):
        reason, details = refusal(stub, namespace=types_pb2.Namespace(lora_id=7), **fields)
        assert reason == "FIELD_NOT_SERVED" and "lora_id" in details


def test_http_lists_adapters_as_models(daemon):
    connection = connect(daemon)
    connection.request("GET", "/v1/models")
    models = {model["id"]: model.get("parent") for model in json.loads(connection.getresponse().read())["data"]}
    connection.close()
    assert models == {"qwen3_tiny": None, "all": "qwen3_tiny", "attention": "qwen3_tiny"}
    for name, cases in CASES.items():
        model = name or "qwen3_tiny"
        for case in cases[:2]:
            body = {"model": model, "prompt": case["prompt"], "max_tokens": len(case["ids"]), "temperature": 0, "return_token_ids": True}
            status, _, text = post(daemon, "/v1/completions", body)
            answer = json.loads(text)
            assert status == 200 and answer["model"] == model
            assert answer["choices"][0]["token_ids"] == case["ids"]
    status, _, text = post(daemon, "/v1/completions", {"model": "nothing", "prompt": [1, 2]})
    assert status == 404 and json.loads(text)["error"]["param"] == "model"


def test_pagodactl_names_one(daemon):
    case = CASES["attention"][1]
    arguments = ["generate", "--prompt-tokens", ",".join(map(str, case["prompt"])), "--max-new-tokens", str(len(case["ids"]))]
    assert pagodactl.run_json(daemon, *arguments, "--adapter", "attention")["tokens"] == case["ids"]
    assert pagodactl.run_json(daemon, *arguments)["tokens"] != case["ids"]


def test_pagoda_engine_loads_its_own(start_daemon):
    cache = start_daemon(cache={"layers": None, "model_dir": str(MODEL), "tokens_per_block": 16, "primary": 512})
    flags = [text for name, path in PATHS.items() for text in ("--adapter", f"{name}={path}")]
    with EngineProcess(cache, *flags, "--concurrency", "8", "--compute", "fp32") as engine:
        wanted = [(name, case) for name, cases in CASES.items() for case in cases]
        for number, (name, case) in enumerate(wanted):
            engine.send(case["prompt"], len(case["ids"]), id=number, adapter=name)
        for _ in wanted:
            answer = engine.answer()
            name, case = wanted[answer["id"]]
            assert answer["tokens"] == case["ids"], name
        assert engine.generate([1, 2], 1, adapter="nothing")["error"]["reason"] == "UNKNOWN_ADAPTER"
        assert engine.finish() == 1, "a request has failed"


@pytest.mark.parametrize("kv", ["paged", "flat", "basic"])
def test_an_engine_without_a_daemon_loads_its_own(kv):
    case = CASES["all"][1]
    arguments = ["--model", MODEL, "--adapter", f"all={PATHS['all']}", "--use-adapter", "all", "--prompt-tokens", ",".join(map(str, case["prompt"])), "--max-new-tokens", len(case["ids"])]
    status, out, err = run_local(*arguments, "--compute", "fp32", "--kv", kv)
    assert status == 0 and "1 adapter" in err, err
    assert [int(word) for word in out.split()] == case["ids"]


def test_a_changed_adapter_finds_no_prefix_of_the_old_one_after_a_warm_restart(tmp_path):
    changing, kept = tmp_path / "changing", tmp_path / "kept"
    shutil.copytree(PATHS["all"], changing)
    shutil.copytree(PATHS["attention"], kept)
    section = {"model_dir": str(MODEL), "adapters": [{"name": "changing", "path": str(changing)}, {"name": "kept", "path": str(kept)}]}
    with contextlib.ExitStack() as stack:
        daemon = WarmDaemon(tmp_path, layers=None, model=None, primary=512, tokens_per_block=16)
        daemon.config["engine"] = section
        stack.callback(lambda: [path.unlink() for path in daemon.files()])
        stack.enter_context(daemon)
        prompt = CASES["all"][2]["prompt"]

        def reused(name):
            return generate(engine_pb2_grpc.EngineServiceStub(daemon.engine_channel), prompt, 1, adapter=name)[1].reused_tokens

        assert [reused(name) for name in ("changing", "kept", "changing")] == [0, 0, len(prompt) - 1]
        config = json.loads((changing / "adapter_config.json").read_text())
        (changing / "adapter_config.json").write_text(json.dumps(config | {"lora_alpha": 7}))
        found, stamps = daemon.again(lambda ended: ended.terminate())
        assert found == stamps > 0
        assert reused("kept") == len(prompt) - 1
        assert reused("changing") == 0
