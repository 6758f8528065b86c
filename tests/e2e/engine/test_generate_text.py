"""Prompts as text and as conversations, over gRPC and by pagodactl. The engine has the
tokenizer."""

import json
import os
import pathlib
import subprocess

import grpc
import pagodactl
import pytest
from pagoda_client import call_status, reason_of
from pagoda.v1 import engine_pb2, engine_pb2_grpc

GOLDEN = pathlib.Path(os.environ["PAGODA_GOLDEN"])
CASES = json.loads((GOLDEN / "qwen3_tiny/tokenizer_cases.json").read_text())


def start(start_daemon, model="qwen3_tiny"):
    return start_daemon(engine={"model_dir": str(GOLDEN / model)}, cache={"layers": None, "primary": 256, "tokens_per_block": 8})


@pytest.fixture
def engine(start_daemon):
    return start(start_daemon)


def generate(daemon, **prompt):
    """(tokens, text, report)"""
    stub = engine_pb2_grpc.EngineServiceStub(daemon.engine_channel)
    responses = list(stub.Generate(engine_pb2.GenerateRequest(max_new_tokens=24, **prompt), timeout=60))
    return [token for response in responses for token in response.tokens], "".join(response.text for response in responses), responses[-1].report


def messages(*turns):
    return [engine_pb2.ChatMessage(role=role, content=content) for role, content in turns]


def test_text_is_the_ids_that_the_tokenizer_makes_of_it(engine):
    texts = [case for case in CASES if case["text"]][::7]
    assert len(texts) > 8
    for case in texts:
        tokens, text, report = generate(engine, prompt_text=case["text"])
        assert report.prompt_tokens == len(case["with_special_tokens"])
        same, no_text, _ = generate(engine, prompt_tokens=case["with_special_tokens"])
        # An answer to text also ends at the model's own end of text.
        assert tokens == same[:len(tokens)] and tokens
        assert text and not no_text


def test_each_turn_of_a_conversation_finds_the_ones_before(engine):
    asked = [("system", "You are brief."), ("user", "Hello there, how are you today?")]
    _, answer, first = generate(engine, messages=messages(*asked))
    asked += [("assistant", answer), ("user", "And tomorrow?")]
    _, _, second = generate(engine, messages=messages(*asked))
    assert first.reused_tokens == 0
    # At least the prompt of the first turn is reused. The answer's tokens depend on how the
    # tokenizer encodes its text.
    assert second.reused_tokens >= first.prompt_tokens - 8 and second.prompt_tokens > first.prompt_tokens


def test_a_prompt_is_one_thing(engine):
    def refused(**prompt):
        with pytest.raises(grpc.RpcError) as error:
            generate(engine, **prompt)
        return reason_of(call_status(error.value))

    assert refused() == "INVALID_PROMPT"
    assert refused(prompt_text="a", prompt_tokens=[1]) == "INVALID_PROMPT"
    assert refused(prompt_text="a", messages=messages(("user", "b"))) == "INVALID_PROMPT"
    assert refused(prompt_text="a", tools=["{}"]) == "INVALID_PROMPT"
    assert refused(prompt_tokens=[1], chat_template_kwargs="{}") == "INVALID_PROMPT"
    assert refused(messages=messages(("user", "b")), tools=["["]) == "INVALID_PROMPT"
    assert refused(messages=messages(("user", "b")), chat_template_kwargs="[]") == "INVALID_PROMPT"
    assert refused(messages=[engine_pb2.ChatMessage(role="user", fields="{")]) == "INVALID_PROMPT"


def test_a_template_decides_which_messages_there_are(engine):
    # Without a template of its own, the model has ChatML, which takes any role.
    one, _, report = generate(engine, messages=messages(("user", "a"), ("assistant", "b")))
    assert one and report.prompt_tokens > 0
    kept = [engine_pb2.ChatMessage(role="judge", content="never read", fields='{"content": "a"}')]
    same, _, _ = generate(engine, messages=messages(("judge", "a")))
    assert generate(engine, messages=kept)[0] == same


def test_pagodactl_prints_text(engine):
    said = pagodactl.run_json(engine, "generate", "--prompt", "Hello there", "--max-new-tokens", "12")
    assert said["text"] and len(said["tokens"]) <= 12
    shown = pagodactl.run_ok(engine, "generate", "--prompt", "Hello there", "--max-new-tokens", "12")
    assert shown.startswith(said["text"]) and "reused" in shown


def chat(daemon, stdin, *arguments):
    done = subprocess.run(pagodactl.command(daemon, "chat", "--max-new-tokens", "12", *arguments), input=stdin, capture_output=True, text=True,
                          timeout=60, check=False)
    assert done.returncode == 0, done
    return done.stdout


def test_a_chat_remembers_and_forgets(engine):
    turns = [json.loads(line) for line in chat(engine, "Hello there\nAnd again\n/reset\nHello there\n", "-o", "json").splitlines()]
    assert len(turns) == 3
    reports = [turn["report"] for turn in turns]
    assert reports[1]["prompt_tokens"] > reports[0]["prompt_tokens"] and reports[1]["reused_tokens"] > reports[0]["prompt_tokens"] // 2
    assert reports[2]["prompt_tokens"] == reports[0]["prompt_tokens"] and turns[2]["text"] == turns[0]["text"]
    assert reports[2]["reused_tokens"] == reports[2]["prompt_tokens"] - 1
    shown = chat(engine, "Hello there\n/quit\nnever said\n")
    assert turns[0]["text"] in shown and "prompt tokens" in shown and shown.count("first token after") == 1


def test_a_chat_has_tools_and_variables(engine, tmp_path):
    tools = tmp_path / "tools.json"
    tools.write_text('[{"type": "function", "function": {"name": "clock"}}]')
    assert json.loads(chat(engine, "Hi\n", "--tools", str(tools), "--template-kwargs", '{"mode": 1}', "-o", "json"))["text"]
    for options, why in ((["--template-kwargs", "[]"], "chat_template_kwargs is not a JSON object"),
                         (["--tools", str(tmp_path / "absent")], "is not a JSON list of tools")):
        ended = subprocess.run(pagodactl.command(engine, "chat", *options), input="Hi\n", capture_output=True, text=True)
        assert ended.returncode != 0 and why in ended.stderr
