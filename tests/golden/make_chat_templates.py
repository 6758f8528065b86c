#!/usr/bin/env python3
"""Makes chat_templates/: public models' chat templates, and what transformers renders from them.

Run it where transformers and jinja2 are installed (README.md). TEMPLATES is the folder
models/templates of llama.cpp's sources:  python make_chat_templates.py TEMPLATES [OUTPUT_FOLDER]
"""

import json
import pathlib
import sys

from transformers.utils.chat_template_utils import _alias_reasoning_fields, _cached_compile_jinja_template

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a place, now.",
        "parameters": {
            "type": "object",
            "properties": {
                "place": {"type": "string", "description": "A town's name, for example \"Zürich\""},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"},
                "days": {"type": "array", "items": {"type": "integer"}},
            },
            "required": ["place"],
        },
    },
}
CLOCK = {
    "type": "function",
    "function": {
        "name": "clock",
        "description": "The time <now> & 'here'.",
        "parameters": {"type": "object", "properties": {}},
        "return": {"type": "string", "description": "ISO 8601"},
    },
}


def call(name, arguments, number="call00001"):
    return {"id": number, "type": "function", "function": {"name": name, "arguments": arguments}}


SYSTEM = {"role": "system", "content": "You are a terse assistant."}
QUESTION = {"role": "user", "content": "What is the weather in Zürich?"}
ZURICH = {"place": "Zürich", "days": [1, 2], "exact": True, "limit": None, "scale": 0.5}
ANSWERED = [
    QUESTION,
    {"role": "assistant", "content": "", "tool_calls": [call("get_weather", ZURICH)]},
    {"role": "tool", "name": "get_weather", "tool_call_id": "call00001", "content": "{\"celsius\": 21}"},
]

# Each: name, messages, other variables.
CONVERSATIONS = [
    ("one", [QUESTION], {}),
    ("system", [SYSTEM, {"role": "user", "content": "  Hi!  \n"}], {}),
    ("turns", [SYSTEM, QUESTION, {"role": "assistant", "content": "21 °C, <b>sunny</b> & \"dry\".\n"},
               {"role": "user", "content": "And tomorrow?\n\n日本 🙂"}], {}),
    ("no_prompt", [QUESTION, {"role": "assistant", "content": " Rain."}], {"add_generation_prompt": False}),
    ("tools", [SYSTEM, QUESTION], {"tools": [WEATHER, CLOCK]}),
    ("tools_alone", [QUESTION], {"tools": [CLOCK]}),
    ("called", ANSWERED, {"tools": [WEATHER, CLOCK]}),
    ("called_twice", [
        SYSTEM, *ANSWERED[:1],
        {"role": "assistant", "content": "I look.", "tool_calls": [
            call("get_weather", {"place": "Bern"}), call("clock", {}, "call00002")]},
        {"role": "tool", "name": "get_weather", "tool_call_id": "call00001", "content": "rain"},
        {"role": "tool", "name": "clock", "tool_call_id": "call00002", "content": "12:00"},
        {"role": "assistant", "content": "Rain at noon."}, {"role": "user", "content": "Thanks."}],
     {"tools": [WEATHER, CLOCK]}),
    ("called_text", [QUESTION, {"role": "assistant", "content": None, "tool_calls": [
        call("get_weather", "{\"place\": \"Bern\"}")]}, ANSWERED[2]], {"tools": [WEATHER]}),
    ("reasoning", [QUESTION, {"role": "assistant", "reasoning_content": "Think\nhard.", "content": "Sun."},
                   {"role": "user", "content": "Why?"}], {}),
    ("thought", [QUESTION, {"role": "assistant", "content": "<think>\nHm.\n</think>\n\nSun."},
                 {"role": "user", "content": "Why?"}], {"enable_thinking": True}),
    ("no_thinking", [SYSTEM, QUESTION], {"enable_thinking": False, "thinking": False}),
    ("parts", [{"role": "user", "content": [{"type": "text", "text": "One, "}, {"type": "text", "text": "two."}]}],
     {}),
    ("two_users", [QUESTION, {"role": "user", "content": "Hello?"}], {}),
    ("assistant_first", [{"role": "assistant", "content": "Hi."}, QUESTION], {}),
    ("developer", [{"role": "developer", "content": "Be kind."}, QUESTION], {"reasoning_effort": "high"}),
    ("empty", [], {}),
]

# What a tokenizer's special tokens would be. The text of the tokens does not matter.
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
NOW = "2026-03-05 14:07:09"


def strftime_now(text):
    import datetime
    return datetime.datetime.strptime(NOW, "%Y-%m-%d %H:%M:%S").strftime(text)


def variables(messages, others):
    return {"messages": messages, "tools": None, "documents": None, "add_generation_prompt": True, **SPECIAL, **others}


def render(source, messages, others):
    """The prompt, or None if the template refuses or fails."""
    template = _cached_compile_jinja_template(source)
    template.globals["strftime_now"] = strftime_now
    try:
        return template.render(**variables(_alias_reasoning_fields(messages), others))
    except Exception:  # Jinja lets every Python error of a template through.
        return None


class Pool:
    """Texts in an order of lines, each kept once."""

    def __init__(self):
        self.lines = {}

    def add(self, text):
        return [self.lines.setdefault(line, len(self.lines)) for line in text.split("\n")]


def main():
    source = pathlib.Path(sys.argv[1])
    folder = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else pathlib.Path(__file__).parent / "chat_templates"
    folder.mkdir(parents=True, exist_ok=True)
    pool = Pool()
    templates = []
    for path in sorted(source.glob("*.jinja")):
        text = path.read_text()
        prompts = {}
        for name, messages, others in CONVERSATIONS:
            prompt = render(text, messages, others)
            prompts[name] = None if prompt is None else pool.add(prompt)
        templates.append({"name": path.stem, "template": pool.add(text), "prompts": prompts})
    result = {
        "now": NOW,
        "conversations": {name: variables(messages, others) for name, messages, others in CONVERSATIONS},
        "templates": templates,
        "lines": list(pool.lines),
    }
    text = json.dumps(result, ensure_ascii=False, separators=(",", ":"))
    (folder / "cases.json").write_text(text + "\n")
    count = sum(len(t["prompts"]) for t in templates)
    print(f"{len(templates)} templates, {count} prompts, {len(text)} characters")


if __name__ == "__main__":
    main()
