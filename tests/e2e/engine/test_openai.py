"""The engine for clients of OpenAI's API: completions and chats over the HTTP port of a daemon's
engine.

PAGODA_OPENAI_PACKAGE names a folder with the `openai` package of PyPI, to test with its client too.
"""

import concurrent.futures
import http.client
import json
import os
import pathlib
import socket
import sys
import time

import pytest
import pagodactl
from pagoda_daemon import QUIET_STOP_SECONDS

GOLDEN = pathlib.Path(os.environ["PAGODA_GOLDEN"])
EXPECTED = json.loads((GOLDEN / "qwen3_tiny" / "expected.json").read_text())
CHAT = {form["name"]: form for form in json.loads((GOLDEN / "text" / "chat.json").read_text())["formats"]}
PUBLIC = json.loads((GOLDEN / "chat_templates" / "cases.json").read_text())
SECONDS = 60
LONG_TOKENS = 3500


def public_text(numbers):
    return "\n".join(PUBLIC["lines"][number] for number in numbers)


def make_model(folder, text=True, template=CHAT["qwen3"]["template"]):
    """The tiny Qwen 3, with a tokenizer of the kind that its family has."""
    folder.mkdir()
    for name in ("config.json", "model.safetensors"):
        (folder / name).symlink_to(GOLDEN / "qwen3_tiny" / name)
    if text:
        (folder / "tokenizer.json").symlink_to(GOLDEN / "text" / "qwen" / "tokenizer.json")
        (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": template, "eos_token": "<|im_end|>"}))
    return folder


@pytest.fixture
def start(start_daemon, tmp_path_factory):
    """start(...) starts a daemon whose engine has the tiny model."""
    def start_with(text=True, server=None, engine=None, template=CHAT["qwen3"]["template"], **sections):
        model = make_model(tmp_path_factory.mktemp("model") / "tiny", text, template)
        return start_daemon(engine={"model_dir": str(model)} | (engine or {}), cache={"layers": None, "primary": 2048},
                            server={"http_address": "127.0.0.1:0"} | (server or {}), **sections)

    return start_with


@pytest.fixture
def daemon(start):
    return start()


def connect(daemon):
    """A connection to the engine."""
    host, port = daemon.engine_http_address.rsplit(":", 1)
    return http.client.HTTPConnection(host, int(port), timeout=SECONDS)


def post(daemon, path, body, token=None):
    """(status, headers, text) of a request."""
    connection = connect(daemon)
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    connection.request("POST", path, body if isinstance(body, (bytes, str)) else json.dumps(body), headers)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, answer.headers, text


def complete(daemon, token=None, **fields):
    status, _, text = post(daemon, "/v1/completions", {"model": "tiny", "temperature": 0} | fields, token)
    assert status == 200, text
    return json.loads(text)


def chat(daemon, content, **fields):
    body = {"model": "tiny", "temperature": 0, "messages": [{"role": "user", "content": content}]} | fields
    status, _, text = post(daemon, "/v1/chat/completions", body)
    assert status == 200, text
    return json.loads(text)


def stream(daemon, path, **fields):
    status, headers, text = post(daemon, path, {"model": "tiny", "temperature": 0, "stream": True} | fields)
    assert status == 200, text
    assert headers["Content-Type"].startswith("text/event-stream")
    events = text.split("\n\n")
    assert events.pop() == "" and events.pop() == "data: [DONE]"
    return [json.loads(event.removeprefix("data: ")) for event in events]


def refused(daemon, status, path="/v1/completions", token=None, body=None, **fields):
    got, headers, text = post(daemon, path, body if body is not None else {"model": "tiny"} | fields, token)
    assert got == status, text
    error = json.loads(text)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return error


def test_greedy_ids_are_those_of_pagodactl_and_of_the_reference(daemon):
    answer = complete(daemon, prompt=EXPECTED["prompt"], max_tokens=20, return_token_ids=True)
    choice = answer["choices"][0]
    assert choice["token_ids"] == EXPECTED["ids"]
    assert choice["finish_reason"] == "length" and choice["index"] == 0
    ids = pagodactl.run_json(daemon, "generate", "--prompt-tokens", ",".join(map(str, EXPECTED["prompt"])), "--max-new-tokens", 20)
    assert json.dumps(EXPECTED["ids"]).strip("[]") in json.dumps(ids)
    assert answer["object"] == "text_completion" and answer["model"] == "tiny" and answer["id"].startswith("cmpl-")
    assert answer["usage"]["prompt_tokens"] == 64 and answer["usage"]["completion_tokens"] == 20
    again = complete(daemon, prompt=EXPECTED["prompt"], max_tokens=20)
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] == 63
    assert again["pagoda"]["reused_tokens"] == 63 and again["pagoda"]["reused_lower_tokens"] == 0
    assert 0 < again["pagoda"]["time_to_first_token_seconds"] < again["pagoda"]["total_seconds"]
    assert again["pagoda"]["tokens_per_second"] > 0
    assert again["choices"][0]["text"] == choice["text"] != ""


def test_texts_lists_and_samples(daemon):
    whole = complete(daemon, prompt=["The capital", "of France"], max_tokens=5, return_token_ids=True)
    assert [choice["index"] for choice in whole["choices"]] == [0, 1]
    for text, choice in zip(["The capital", "of France"], whole["choices"]):
        assert complete(daemon, prompt=text, max_tokens=5)["choices"][0]["text"] == choice["text"]
    ids = complete(daemon, prompt=[[1, 2, 3], [4, 5]], max_tokens=3, n=2, temperature=1.0, seed=7, return_token_ids=True)
    assert [choice["index"] for choice in ids["choices"]] == [0, 1, 2, 3]
    assert ids["usage"]["completion_tokens"] == 12
    again = complete(daemon, prompt=[[1, 2, 3], [4, 5]], max_tokens=3, n=2, temperature=1.0, seed=7, return_token_ids=True)
    assert [c["token_ids"] for c in ids["choices"]] == [c["token_ids"] for c in again["choices"]]
    other = complete(daemon, prompt=[1, 2, 3], max_tokens=30, n=4, temperature=1.0, return_token_ids=True)
    assert len({tuple(choice["token_ids"]) for choice in other["choices"]}) == 4


def test_a_stream_is_the_same_text_in_pieces(daemon):
    whole = complete(daemon, prompt="Hello", max_tokens=40, return_token_ids=True)
    chunks = stream(daemon, "/v1/completions", prompt="Hello", max_tokens=40, return_token_ids=True)
    choices = [chunk["choices"][0] for chunk in chunks]
    assert "".join(choice["text"] for choice in choices) == whole["choices"][0]["text"]
    assert sum((choice["token_ids"] for choice in choices), []) == whole["choices"][0]["token_ids"]
    assert [choice["finish_reason"] for choice in choices] == [None] * (len(choices) - 1) + ["length"]
    assert "usage" not in chunks[-1] and chunks[-1]["pagoda"]["reused_tokens"] > 0
    assert len({chunk["id"] for chunk in chunks}) == 1
    counted = stream(daemon, "/v1/completions", prompt="Hello", max_tokens=4, stream_options={"include_usage": True})
    assert counted[-1]["choices"] == [] and counted[-1]["usage"]["completion_tokens"] == 4 and "pagoda" in counted[-1]
    many = stream(daemon, "/v1/completions", prompt=["a", "b"], n=2, temperature=1.0, max_tokens=6)
    assert sorted({chunk["choices"][0]["index"] for chunk in many}) == [0, 1, 2, 3]


def test_a_chat_has_the_prompt_of_its_template(daemon):
    answer = chat(daemon, "Hi", max_tokens=8, ignore_eos=True)
    assert answer["object"] == "chat.completion"
    message = answer["choices"][0]["message"]
    assert message["role"] == "assistant" and isinstance(message["content"], str)
    prompt = next(case["prompt"] for case in CHAT["qwen3"]["cases"] if [m["content"] for m in case["messages"]] == ["Hi"])
    plain = complete(daemon, prompt=prompt, max_tokens=8, ignore_eos=True)
    assert plain["choices"][0]["text"] == message["content"]
    assert plain["usage"]["prompt_tokens"] == answer["usage"]["prompt_tokens"]
    parts = chat(daemon, [{"type": "text", "text": "H"}, {"type": "text", "text": "i"}], max_completion_tokens=8, ignore_eos=True)
    assert parts["choices"][0]["message"] == message
    chunks = stream(daemon, "/v1/chat/completions", messages=[{"role": "user", "content": "Hi"}], max_tokens=8, ignore_eos=True,
                    stream_options={"include_usage": True})
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks[:-1]]
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert "".join(delta.get("content", "") for delta in deltas) == message["content"]
    assert chunks[-1]["usage"] == answer["usage"] | {"prompt_tokens_details": chunks[-1]["usage"]["prompt_tokens_details"]}
    assert all(chunk["object"] == "chat.completion.chunk" for chunk in chunks)


def test_a_template_gets_tools_calls_and_variables(start):
    public = next(example for example in PUBLIC["templates"] if example["name"] == "Qwen-Qwen3-0.6B")
    daemon = start(template="{% if messages[0].role == 'tool' %}{{ raise_exception('No result ' ~ 'first') }}{% endif %}"
                   + public_text(public["template"]))
    short = {"max_tokens": 4, "ignore_eos": True}

    def check(asked, conversation):
        told = complete(daemon, prompt=public_text(public["prompts"][conversation]), **short)
        assert asked["usage"]["prompt_tokens"] == told["usage"]["prompt_tokens"]
        assert asked["choices"][0]["message"]["content"] == told["choices"][0]["text"]

    called = json.loads(json.dumps(PUBLIC["conversations"]["called"]))
    for message in called["messages"]:
        for call in message.get("tool_calls", []):
            # Clients of the API write it in this form.
            call["function"]["arguments"] = json.dumps(call["function"]["arguments"])
    check(chat(daemon, "", messages=called["messages"], tools=called["tools"], tool_choice="auto", **short), "called")
    question = PUBLIC["conversations"]["one"]["messages"]
    check(chat(daemon, "", messages=question, tools=called["tools"], tool_choice="none", **short), "one")
    check(chat(daemon, "", messages=PUBLIC["conversations"]["no_thinking"]["messages"], chat_template_kwargs={"enable_thinking": False}, **short),
          "no_thinking")
    error = refused(daemon, 400, "/v1/chat/completions", messages=[{"role": "tool", "content": "a"}])
    assert error["code"] == "invalid_prompt" and "line 1: No result first" in error["message"]


def test_a_stop_string_ends_the_text_before_it(daemon):
    text = complete(daemon, prompt=EXPECTED["prompt"], max_tokens=60)["choices"][0]["text"]
    assert len(text) > 20
    stop = text[10:13]
    cut = text[:text.index(stop)]
    answer = complete(daemon, prompt=EXPECTED["prompt"], max_tokens=60, stop=[stop, "never said"])
    assert answer["choices"][0] | {"text": cut, "finish_reason": "stop"} == answer["choices"][0]
    assert answer["usage"]["completion_tokens"] < 60
    chunks = stream(daemon, "/v1/completions", prompt=EXPECTED["prompt"], max_tokens=60, stop=stop)
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == cut
    ids = EXPECTED["ids"]
    ended = complete(daemon, prompt=EXPECTED["prompt"], max_tokens=60, stop_token_ids=[ids[5]], return_token_ids=True)["choices"][0]
    assert ended["finish_reason"] == "stop" and ended["token_ids"] == ids[:ids.index(ids[5]) + 1]


def test_logprobs(daemon):
    choice = complete(daemon, prompt=EXPECTED["prompt"], max_tokens=3, logprobs=2)["choices"][0]
    table = choice["logprobs"]
    assert len(table["tokens"]) == len(table["token_logprobs"]) == len(table["top_logprobs"]) == len(table["text_offset"]) == 3
    for logprob, top in zip(table["token_logprobs"], table["top_logprobs"]):
        assert logprob == max(top.values()) <= 0
    content = chat(daemon, "Hi", max_tokens=3, logprobs=True, top_logprobs=3, ignore_eos=True)["choices"][0]["logprobs"]["content"]
    assert len(content) == 3
    for row in content:
        assert len(row["top_logprobs"]) == 3 and row["logprob"] == row["top_logprobs"][0]["logprob"]
        assert row["bytes"] is None or bytes(row["bytes"]).decode() == row["token"]
    assert complete(daemon, prompt="a", max_tokens=1)["choices"][0]["logprobs"] is None


def test_models(daemon):
    status, text = daemon.engine_http("/v1/models")
    assert status == 200
    model, = json.loads(text)["data"]
    assert model["id"] == "tiny" and model["object"] == "model"
    status, text = daemon.engine_http("/v1/models/tiny")
    assert status == 200 and json.loads(text) == model
    for path, code, message in (("/v1/models/gpt-4o", "model_not_found", "'gpt-4o'"), ("/v1/models/org/x", "model_not_found", "'org/x'"),
                                ("/v1/embeddings", "not_found", "not found")):
        status, text = daemon.engine_http(path)
        error = json.loads(text)["error"]
        assert status == 404 and error["code"] == code and message in error["message"] and error["type"] == "invalid_request_error"
    assert refused(daemon, 404, path="/v1/embeddings")["param"] is None
    status, text = daemon.engine_http("/v1/completions")
    assert status == 405 and json.loads(text)["error"]["code"] == "method_not_allowed"


def test_errors_have_the_shape_of_openai(daemon):
    assert refused(daemon, 404, body={"model": "gpt-4o", "prompt": "a"})["code"] == "model_not_found"
    for field, value in {"temperature": -1, "top_p": 2, "n": 0, "max_tokens": 0, "prompt": [], "stop": [""], "logprobs": 99,
                         "stream": 1, "seed": 0.5, "top_k": "a", "stream_options": {}}.items():
        error = refused(daemon, 400, **({"prompt": "a"} | {field: value}))
        assert error["type"] == "invalid_request_error" and field.split("_")[0] in error["message"], error
        assert error["param"] == field or field not in ("temperature", "top_p"), error
    for field, value in {"echo": True, "suffix": "x", "best_of": 3, "logit_bias": {"1": 2}, "presence_penalty": 0.5, "nonsense": 1}.items():
        error = refused(daemon, 400, **{"prompt": "a", field: value})
        assert error["code"] == "unsupported_parameter" and error["param"] == field
    for field, value in {"tool_choice": "required", "response_format": {"type": "yaml"}, "functions": [{}]}.items():
        error = refused(daemon, 400, "/v1/chat/completions", messages=[{"role": "user", "content": "a"}], **{field: value})
        assert error["code"] == "unsupported_parameter" and error["param"] == field
    assert refused(daemon, 400, body=b"{")["param"] == "body"
    assert "deep" in refused(daemon, 400, body=b"[" * 100000)["message"]
    assert refused(daemon, 400, body=b'{"model": "tiny", "prompt": "\xff"}')["param"] == "body"
    assert refused(daemon, 400, prompt=[999999])["code"] == "invalid_prompt"
    assert refused(daemon, 400, prompt="a", max_tokens=10**9)["code"] == "invalid_prompt"
    assert refused(daemon, 400, "/v1/chat/completions", messages=[])["code"] == "invalid_prompt"
    connection = connect(daemon)
    connection.request("GET", "/v1/completions")
    assert connection.getresponse().status == 405
    # Fields that are not served are accepted with neutral values.
    assert complete(daemon, prompt="a", max_tokens=1, echo=False, presence_penalty=0, logit_bias={}, best_of=1, user="me", suffix=None)


def test_a_body_that_is_too_large_is_refused(start):
    daemon = start(server={"max_message_bytes": 65536})
    assert refused(daemon, 413, body=b" " * 70000)["code"] == "request_too_large"
    connection = connect(daemon)
    connection.putrequest("POST", "/v1/completions")
    connection.putheader("Transfer-Encoding", "chunked")
    connection.endheaders()
    try:
        for _ in range(20):
            connection.send(b"1000\r\n" + b" " * 4096 + b"\r\n")
    except ConnectionError:
        return  # The daemon has closed the connection. That is an answer too.
    assert connection.getresponse().status == 413


def test_another_hosts_name_is_refused(daemon):
    connection = connect(daemon)
    connection.request("POST", "/v1/completions", json.dumps({"model": "tiny", "prompt": "a"}), {"Host": "evil.example:80"})
    answer = connection.getresponse()
    assert answer.status == 421 and json.loads(answer.read())["error"]["type"] == "invalid_request_error"


def post_as(daemon, path="/v1/completions", **headers):
    connection = connect(daemon)
    connection.request("POST", path, json.dumps({"model": "tiny", "prompt": "a", "max_tokens": 1}), headers)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


def test_a_page_of_another_site_generates_nothing(daemon):
    for origin in ("http://evil.example", "null", "https://localhost"):
        for path in ("/v1/completions", "/v1/chat/completions"):
            status, text = post_as(daemon, path, Origin=origin)
            assert status == 403 and json.loads(text)["error"]["code"] == "permission_denied", text
        assert daemon.engine_http_as("/v1/models", None, Origin=origin)[0] == 403
    assert post_as(daemon, Origin=f"http://{daemon.engine_http_address}")[0] == 200
    assert daemon.engine_metric("generated_tokens_total") == 1


def test_without_callers_clients_of_a_proxy_generate_nothing(start):
    daemon = start()
    assert post_as(daemon, **{"Host": "localhost", "X-Forwarded-For": "192.0.2.7"})[0] == 403
    assert daemon.engine_http_as("/v1/models", Via="1.1 proxy")[0] == 403
    assert daemon.engine_metric("prompt_tokens_total") == 0


def test_without_callers_other_machines_generate_nothing(start):
    daemon = start(server={"http_insecure": True}, engine={"http_address": "0.0.0.0:0"})
    daemon.engine_http_address = f"127.0.0.1:{daemon.engine_http_address.rpartition(':')[2]}"
    for host in ("pagoda.example:7071", "localhost", daemon.engine_http_address):
        assert post_as(daemon, Host=host)[0] == 403, host
    assert daemon.engine_http("/v1/models")[0] == 403
    assert daemon.engine_metric("prompt_tokens_total") == 0


def test_with_callers_other_machines_generate_by_their_tokens(start):
    daemon = start(server={"http_insecure": True}, engine={"http_address": "0.0.0.0:0"}, operator_token="operator-secret-token")
    daemon.engine_http_address = f"127.0.0.1:{daemon.engine_http_address.rpartition(':')[2]}"
    assert post_as(daemon)[0] == 401
    assert post_as(daemon, Authorization="Bearer operator-secret-token", Host="pagoda.example")[0] == 200


def test_a_tenant_that_shares_is_not_told_what_others_have_asked(start):
    tokens = {"mine": "token-of-the-one-that-does-not", "ours": "token-of-the-one-that-shares", "theirs": "token-of-another-that-shares"}
    daemon = start(operator_token="operator-secret-token", secrets={f"{name}.tokens": token for name, token in tokens.items()},
                   tenants=[{"name": name, "tokens_file": f"{name}.tokens", "shares": name != "mine"} for name in tokens])
    for name in ("ours", "theirs"):
        answer = complete(daemon, token=tokens[name], prompt=EXPECTED["prompt"], max_tokens=2)
        assert "prompt_tokens_details" not in answer["usage"] and answer["usage"]["prompt_tokens"] == 64
        assert not [key for key in answer["pagoda"] if key.startswith("reused")] and "preemptions" in answer["pagoda"]
        _, _, text = post(daemon, "/v1/completions", {"model": "tiny", "prompt": EXPECTED["prompt"], "max_tokens": 2, "stream": True,
                                                      "stream_options": {"include_usage": True}}, tokens[name])
        assert "cached_tokens" not in text and "reused" not in text and "preemptions" in text
    for token, cached in ((tokens["mine"], 0), (tokens["mine"], 63), ("operator-secret-token", 63)):
        answer = complete(daemon, token=token, prompt=EXPECTED["prompt"], max_tokens=2)
        assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == answer["pagoda"]["reused_tokens"] == cached


def test_callers_show_their_tokens(start):
    daemon = start(operator_token="operator-secret-token", secrets={"one.tokens": "tenant-secret-token"},
                   tenants=[{"name": "one", "tokens_file": "one.tokens"}])
    assert refused(daemon, 401, prompt="a")["code"] == "invalid_api_key"
    assert refused(daemon, 401, prompt="a", token="wrong")["type"] == "authentication_error"
    assert post(daemon, "/v1/chat/completions", b"", None)[0] == 401
    first = complete(daemon, token="tenant-secret-token", prompt=EXPECTED["prompt"], max_tokens=2)
    assert first["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    # Only the tenant can use the blocks of its prompt.
    assert complete(daemon, token="operator-secret-token", prompt=EXPECTED["prompt"], max_tokens=2)["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    again = complete(daemon, token="tenant-secret-token", prompt=EXPECTED["prompt"], max_tokens=2)
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] == 63
    salted = complete(daemon, token="tenant-secret-token", prompt=EXPECTED["prompt"], max_tokens=2, cache_salt="x")
    assert salted["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


def test_without_a_tokenizer_ids_work_and_texts_are_refused(start):
    daemon = start(text=False)
    answer = complete(daemon, prompt=EXPECTED["prompt"], max_tokens=20)
    assert answer["choices"][0]["token_ids"] == EXPECTED["ids"] and answer["choices"][0]["text"] == ""
    assert "tokenizer.json" in refused(daemon, 400, prompt="a")["message"]
    assert "tokenizer.json" in refused(daemon, 400, prompt=[1], stop="x")["message"]
    assert "tokenizer.json" in refused(daemon, 400, "/v1/chat/completions", messages=[{"role": "user", "content": "a"}])["message"]


@pytest.mark.parametrize("with_model", [False, True])
def test_the_daemons_own_port_has_no_such_api(start, start_daemon, with_model):
    daemon = start() if with_model else start_daemon(server={"http_address": "127.0.0.1:0"})
    assert daemon.http("/readyz") == (200, "ok\n")
    assert daemon.http("/v1/models")[0] == 404
    daemon.engine_http_address = daemon.http_address
    assert post(daemon, "/v1/completions", {"model": "tiny", "prompt": "a"})[0] == 404


def begin_long(daemon, streaming):
    """The socket of a generation that goes on."""
    body = json.dumps({"model": "tiny", "prompt": EXPECTED["prompt"], "max_tokens": LONG_TOKENS, "stream": streaming, "ignore_eos": True})
    host, port = daemon.engine_http_address.rsplit(":", 1)
    client = socket.create_connection((host, int(port)), timeout=SECONDS)
    client.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
    return client


def running(daemon):
    return daemon.engine_metric("running_requests")


@pytest.mark.parametrize("streaming", [True, False])
def test_a_client_that_goes_away_ends_its_generation(daemon, streaming):
    client = begin_long(daemon, streaming)
    daemon.wait_until(lambda daemon: running(daemon) == 1)
    client.close()
    start_time = time.monotonic()
    daemon.wait_until(lambda daemon: running(daemon) == 0)
    assert daemon.engine_metric("generated_tokens_total") < LONG_TOKENS, time.monotonic() - start_time


def test_more_than_may_run_are_refused_and_the_rest_of_http_answers(start):
    daemon = start(server={"max_http_generations": 2})
    clients = [begin_long(daemon, True) for _ in range(2)]
    daemon.wait_until(lambda daemon: running(daemon) == 2)
    error = refused(daemon, 429, prompt="a")
    assert error["code"] == "too_many_calls" and error["type"] == "rate_limit_error"
    assert daemon.engine_http("/livez")[0] == 200 and daemon.engine_http("/metrics")[0] == 200
    for client in clients:
        client.close()
    daemon.wait_until(lambda daemon: running(daemon) == 0)
    assert complete(daemon, prompt="a", max_tokens=1)


def test_fifty_at_once(start):
    daemon = start(server={"max_http_generations": 64})
    alone = [complete(daemon, prompt=[7, number], max_tokens=12, return_token_ids=True)["choices"][0]["token_ids"] for number in range(10)]

    def ask(number):
        if number % 2:
            return complete(daemon, prompt=[7, number % 10], max_tokens=12, return_token_ids=True)["choices"][0]["token_ids"]
        chunks = stream(daemon, "/v1/completions", prompt=[7, number % 10], max_tokens=12, return_token_ids=True)
        return sum((chunk["choices"][0]["token_ids"] for chunk in chunks), [])

    with concurrent.futures.ThreadPoolExecutor(50) as pool:
        answers = list(pool.map(ask, range(50)))
    assert answers == [alone[number % 10] for number in range(50)]


def test_a_drain_lets_generations_end_and_takes_no_more(start):
    daemon = start()
    client = begin_long(daemon, True)
    daemon.wait_until(lambda daemon: running(daemon) == 1)
    daemon.process.terminate()
    deadline = time.monotonic() + SECONDS
    while daemon.engine_http("/readyz")[0] != 503 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert refused(daemon, 503, prompt="a")["code"] == "draining"
    text = b""
    while piece := client.recv(65536):
        text += piece
    assert text.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
    assert daemon.wait(QUIET_STOP_SECONDS) == 0


def begin_reading_slowly(daemon, choices):
    """The socket of an answer that is being generated. Most of the answer is still in the engine,
    because the sockets take less."""
    body = json.dumps({"model": "tiny", "prompt": EXPECTED["prompt"], "max_tokens": LONG_TOKENS, "ignore_eos": True, "n": choices,
                       "logprobs": 20})
    host, port = daemon.engine_http_address.rsplit(":", 1)
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.settimeout(2 * SECONDS)
    client.connect((host, int(port)))
    client.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
    assert client.recv(1) == b"H"
    assert running(daemon) == 0
    return client


def test_a_drain_waits_for_an_answer_that_is_being_read(start):
    daemon = start()
    with begin_reading_slowly(daemon, choices=4) as client:
        daemon.process.terminate()
        text = b"H"
        for _ in range(50):
            text += client.recv(100)
            time.sleep(0.01)
        assert daemon.process.poll() is None, "the answer is on its way"
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        text += b"".join(iter(lambda: client.recv(65536), b""))
    head, _, answer = text.partition(b"\r\n\r\n")
    assert f"Content-Length: {len(answer)}\r\n".encode() in head
    assert daemon.wait(QUIET_STOP_SECONDS) == 0


def test_a_drain_does_not_wait_for_long_for_an_answer_that_is_read_slowly(start):
    daemon = start(server={"drain_timeout": "200ms"})
    with begin_reading_slowly(daemon, choices=8) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        daemon.process.terminate()
        deadline = time.monotonic() + QUIET_STOP_SECONDS
        while daemon.process.poll() is None and time.monotonic() < deadline:
            client.recv(16384)  # A megabyte a second. It is slow, but not so slow that the engine gives up.
            time.sleep(0.016)
        assert daemon.process.poll() is not None, "the client keeps it up"
    assert daemon.wait(0) == 0


@pytest.mark.skipif("PAGODA_OPENAI_PACKAGE" not in os.environ, reason="PAGODA_OPENAI_PACKAGE names no folder with the openai package")
def test_openais_own_client(daemon):
    sys.path.insert(0, os.environ["PAGODA_OPENAI_PACKAGE"])
    import openai
    client = openai.OpenAI(base_url=f"http://{daemon.engine_http_address}/v1", api_key="none", max_retries=0)
    assert [model.id for model in client.models.list()] == ["tiny"]
    whole = client.completions.create(model="tiny", prompt="Hello", max_tokens=8, temperature=0, logprobs=1)
    assert whole.usage.completion_tokens == 8
    pieces = client.completions.create(model="tiny", prompt="Hello", max_tokens=8, temperature=0, stream=True)
    assert "".join(piece.choices[0].text for piece in pieces) == whole.choices[0].text
    messages = [{"role": "user", "content": "Hi"}]
    answer = client.chat.completions.create(model="tiny", messages=messages, max_tokens=8, temperature=0, logprobs=True, top_logprobs=2)
    pieces = client.chat.completions.create(model="tiny", messages=messages, max_tokens=8, temperature=0, stream=True,
                                            stream_options={"include_usage": True})
    pieces = list(pieces)
    assert "".join(piece.choices[0].delta.content or "" for piece in pieces if piece.choices) == answer.choices[0].message.content
    assert pieces[-1].usage.completion_tokens == answer.usage.completion_tokens
    tools = [{"type": "function", "function": {"name": "f"}}]
    assert client.chat.completions.create(model="tiny", messages=messages, tools=tools, max_tokens=2).choices
    with pytest.raises(openai.NotFoundError):
        client.completions.create(model="other", prompt="a")
    with pytest.raises(openai.BadRequestError):
        client.chat.completions.create(model="tiny", messages=messages, tools=tools, tool_choice="required")
