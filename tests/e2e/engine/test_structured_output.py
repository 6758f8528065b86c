"""Answers that must conform to a schema, an expression or a grammar: over HTTP, by pagodactl and by
pagoda-engine. The model's weights are random, so that without a grammar it says something else."""

import itertools
import json
import os
import re
import select
import signal
import statistics
import threading
import time

import grpc
import pagodactl
import pytest
from pagoda.v1 import engine_pb2, engine_pb2_grpc
from pagoda_client import call_status, reason_of
from test_openai import daemon, make_model, post, start  # noqa: F401  (fixtures)
from test_engine_local import run_local

SCHEMA = {
    "type": "object",
    "properties": {"size": {"enum": ["small", "large"]}, "count": {"type": "integer", "minimum": 1, "maximum": 20}},
    "required": ["size", "count"],
}
GRAMMAR = 'root ::= "(" [ab]{2} root? ")"'


@pytest.fixture(autouse=True)
def needs_the_library(tmp_path):
    _, _, told = run_local("--model", make_model(tmp_path / "probe"), "--prompt-tokens", "1", "--regex", "a")
    if "FIELD_NOT_SERVED" in told:
        pytest.skip("the programs were built without structured output")


def chat(daemon, **fields):  # noqa: F811
    body = {"model": "tiny", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 400} | fields
    status, _, text = post(daemon, "/v1/chat/completions", body)
    return status, json.loads(text)


def said(answer):
    choice = answer["choices"][0]
    assert choice["finish_reason"] == "stop", answer
    return choice["message"]["content"]


def check(value):
    assert list(value) == ["size", "count"], "the properties come in the schema's order"
    assert value["size"] in ("small", "large") and 1 <= value["count"] <= 20


def test_a_chat_answers_in_the_wanted_format(daemon):  # noqa: F811
    schema = {"type": "json_schema", "json_schema": {"name": "thing", "schema": SCHEMA, "strict": True}}
    for seed in range(10):
        status, answer = chat(daemon, response_format=schema, temperature=1.5, seed=seed)
        assert status == 200, answer
        check(json.loads(said(answer)))
    status, answer = chat(daemon, guided_regex="(yes|no), [a-z]{3}", temperature=1.0, seed=1)
    assert status == 200 and re.fullmatch("(yes|no), [a-z]{3}", said(answer)), answer
    status, answer = chat(daemon, guided_grammar=GRAMMAR, temperature=1.0, seed=1)
    assert status == 200 and re.fullmatch(r"(\([ab]{2})+\)+", said(answer)), answer
    status, answer = chat(daemon, response_format={"type": "json_object"}, max_tokens=20)
    assert status == 200 and answer["choices"][0]["message"]["content"].startswith("{"), answer
    # A stream has the same text, and a completion is as well behaved as a chat.
    body = {"model": "tiny", "prompt": "a", "guided_json": SCHEMA, "max_tokens": 400, "seed": 3, "temperature": 1.0}
    whole = json.loads(post(daemon, "/v1/completions", body)[2])["choices"][0]["text"]
    check(json.loads(whole))
    stream = post(daemon, "/v1/completions", body | {"stream": True})[2]
    events = [json.loads(line[6:]) for line in stream.splitlines() if line.startswith("data: {")]
    assert "".join(event["choices"][0]["text"] for event in events) == whole


def test_a_bad_format_is_the_callers_error(daemon):  # noqa: F811
    for fields, says in [({"guided_regex": "(a"}, "grammar: "), ({"guided_grammar": "root ::= x"}, "x"),
                         ({"guided_json": {"not": {}}}, "'not'"), ({"guided_regex": "a" * 70000}, "65536"),
                         ({"guided_regex": "(" * 1000 + ")" * 1000}, "nests")]:
        status, answer = chat(daemon, **fields)
        assert status == 400 and says in answer["error"]["message"], answer
    status, _ = chat(daemon, max_tokens=2)
    assert status == 200, "the engine goes on"


def nested(count):
    return "(" * count + "a" + ")" * count


# Each ended the engine, or could end a process that is not bounded. None: the library can compile
# the text within its budget, so it is answered or refused.
HOSTILE = [
    ("guided_grammar", "root ::= root{0,1}", "'root' is nothing but a repetition of itself"),
    ("guided_grammar", "root ::= root{0,}", "'root'"),
    ("guided_grammar", "root ::= root{2}", "'root'"),
    ("guided_grammar", "root ::= ((root{1,2})){0,1}", "'root'"),
    ("guided_grammar", 'root ::= "" root{0,1} ()', "'root'"),
    ("guided_grammar", 'root ::= "x" a\na ::= b{0,1}\nb ::= c\nc ::= a{3,}', "a -> b -> c -> a"),
    ("guided_grammar", "".join(f"r{i:x} ::= r{i + 1:x}\n" for i in range(4200)) + f'r{4200:x} ::= "a"\nroot ::= r0', "4202 rules"),
    ("guided_grammar", f'root ::= Regex("{nested(20000)}")', "20000 brackets"),
    ("guided_grammar", f"root ::= {nested(20000)}", "20000 brackets"),
    ("guided_grammar", 'root ::= "a"{0,2000000000}', None),
    ("guided_grammar", "root[capture_hidden_body_rule_id=999999999,capture_hidden_marker_rule_id=1] ::= \"a\"", None),
    ("guided_regex", "(((((a{1,99}){1,99}){1,99}){1,99}){1,99}){1,99}", None),
    ("guided_regex", nested(20000), "20000 brackets"),
    ("guided_json", {"type": "string", "pattern": nested(20000)}, "20000 brackets"),
    ("guided_json", {"patternProperties": {nested(20000): {}}}, "20000 brackets"),
]


def test_a_hostile_grammar_is_refused_and_the_engine_goes_on(daemon):  # noqa: F811
    engine = daemon.engine_pid()
    for field, value, says in HOSTILE:
        for _ in range(2):
            status, _, text = post(daemon, "/v1/completions", {"model": "tiny", "prompt": "a", "max_tokens": 2, field: value})
            if says is None:
                assert status == 200 or "grammar: " in json.loads(text)["error"]["message"], (field, str(value)[:60], text)
            else:
                assert status == 400 and says in json.loads(text)["error"]["message"], (field, str(value)[:60], text)
        status, answer = chat(daemon, guided_regex="(yes|no)")
        assert status == 200 and said(answer) in ("yes", "no"), f"after {str(value)[:60]}"
    assert daemon.process.poll() is None and daemon.engine_pid() == engine


def compilers_of(daemon):  # noqa: F811
    children = f"/proc/{daemon.engine_pid()}/task"
    return [int(pid) for task in os.listdir(children) for pid in open(f"{children}/{task}/children").read().split()
            if open(f"/proc/{pid}/comm").read() == "pagoda-grammar\n"]


def end_of(pid):
    ended = select.poll()
    ended.register(os.pidfd_open(pid), select.POLLIN)
    return ended


def test_grammars_are_compiled_in_a_process_that_may_die(daemon):  # noqa: F811
    assert compilers_of(daemon) == [], "it starts with the first grammar"
    assert said(chat(daemon, guided_regex="no")[1]) == "no"
    (first,) = compilers_of(daemon)
    assert said(chat(daemon, guided_regex="yes")[1]) == "yes"
    assert compilers_of(daemon) == [first]
    ended = end_of(first)
    os.kill(first, signal.SIGKILL)
    assert ended.poll(30_000)
    assert said(chat(daemon, guided_regex="perhaps")[1]) == "perhaps"
    (second,) = compilers_of(daemon)
    assert second != first
    # It ends with the engine, however that ends, and the engine ends with the daemon.
    ended = end_of(second)
    os.kill(daemon.engine_pid(), signal.SIGKILL)
    assert ended.poll(30_000), "the process outlives the engine"
    daemon.wait_until(lambda daemon: daemon.status().engine.up and daemon.status().engine.restarts == 1)
    daemon.engine_http_address = daemon.status().engine.addresses.http
    assert said(chat(daemon, guided_regex="maybe")[1]) == "maybe"
    (third,) = compilers_of(daemon)
    ended = end_of(third)
    daemon.kill()
    assert ended.poll(30_000), "the process outlives the daemon"


def long_grammar(end):
    """It takes all the time that a compilation may take."""
    return "root ::= " + " ".join(f"[^{chr(97 + i % 26)}\\n]*" for i in range(1000)) + f' "{end}"'


def test_a_tenants_long_grammars_hold_up_no_short_one_of_another(start):  # noqa: F811
    tokens = {name: f"tenant-{name}-0123456789abcdef" for name in ("a", "b")}
    daemon = start(operator_token="operator-0123456789abcdef",  # noqa: F811
                   secrets={f"{name}.tokens": token for name, token in tokens.items()},
                   tenants=[{"name": name, "tokens_file": f"{name}.tokens"} for name in tokens])
    numbers = itertools.count()

    def seconds_of(name, **fields):
        begin = time.monotonic()
        status, _, text = post(daemon, "/v1/completions", {"model": "tiny", "prompt": "a", "max_tokens": 1} | fields, tokens[name])
        assert status == 200 or "too much time" in text, text
        return time.monotonic() - begin

    def short():
        return seconds_of("b", guided_regex=f"a{next(numbers)}")

    short()
    alone = [short() for _ in range(20)]
    long, over = [], threading.Event()

    def compile_long_ones():
        while not over.is_set():
            long.append(seconds_of("a", guided_grammar=long_grammar(next(numbers))))

    threads = [threading.Thread(target=compile_long_ones) for _ in range(2)]
    for thread in threads:
        thread.start()
    while not long and all(thread.is_alive() for thread in threads):
        time.sleep(0.01)
    short()  # Starts a second process.
    beside = []
    while len(long) < 3 and all(thread.is_alive() for thread in threads):
        beside.append(short())
    over.set()
    for thread in threads:
        thread.join()
    print(f"short: {statistics.median(alone) * 1e3:.1f} ms alone, {statistics.median(beside) * 1e3:.1f} ms beside, "
          f"slowest {max(beside) * 1e3:.0f} ms; long: {min(long):.2f} s")
    assert len(beside) >= 20 and max(beside) < min(long) / 2
    assert len(compilers_of(daemon)) == 2


def test_pagodactl_and_pagoda_engine_take_files(daemon, tmp_path):  # noqa: F811
    schema, grammar = tmp_path / "schema.json", tmp_path / "grammar.ebnf"
    schema.write_text(json.dumps(SCHEMA))
    grammar.write_text(GRAMMAR)
    common = ["--prompt", "Hi", "--max-new-tokens", "400", "--temperature", "1.0"]
    model = make_model(tmp_path / "tiny")
    check(json.loads(pagodactl.run_json(daemon, "generate", *common, "--json-schema", str(schema))["text"]))
    assert re.fullmatch(r"(\([ab]{2})+\)+", pagodactl.run_json(daemon, "generate", *common, "--grammar", str(grammar))["text"])
    check(json.loads(run_local("--model", model, *common, "--json-schema", schema)[1]))
    assert re.fullmatch("(cat|dog)s\n", run_local("--model", model, *common, "--regex", "(cat|dog)s")[1])
    status, _, told = run_local("--model", model, *common, "--grammar", "/nowhere")
    assert status == 1 and "cannot read" in told
    status, _, told = run_local("--model", model, *common, "--grammar", grammar, "--regex", "a")
    assert status == 2, told


def test_a_batch_has_formats_of_its_own(daemon):  # noqa: F811
    stub = engine_pb2_grpc.EngineServiceStub(daemon.engine_channel)
    common = {"prompt_text": "Hi", "max_new_tokens": 400, "temperature": 1.0}
    expressions = ["a{%d}b" % count for count in range(1, 9)]
    calls = [stub.Generate(engine_pb2.GenerateRequest(**common, structured_output={"regex": text}), timeout=120) for text in expressions]
    for text, call in zip(expressions, calls):
        responses = list(call)
        assert re.fullmatch(text, "".join(response.text for response in responses))
        assert responses[-1].report.finish_reason == engine_pb2.FINISH_REASON_STOP_TOKEN
    for wanted in ({}, {"json_object": False}):
        with pytest.raises(grpc.RpcError) as refused:
            list(stub.Generate(engine_pb2.GenerateRequest(**common, structured_output=wanted), timeout=60))
        assert reason_of(call_status(refused.value)) == "INVALID_ARGUMENT"
    with pytest.raises(grpc.RpcError) as refused:
        request = engine_pb2.GenerateRequest(prompt_tokens=[1], max_new_tokens=2, beam_width=2, structured_output={"regex": "a"})
        list(stub.Generate(request, timeout=60))
    assert reason_of(call_status(refused.value)) == "INVALID_SAMPLING"
