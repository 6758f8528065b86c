"""Every architecture by an engine in a process of its own, over the daemon's mapped pools: the tokens of Hugging Face transformers."""

import json

import pytest
from engine_process import MODEL, run

GOLDEN = MODEL.parent
# A folder of tests/golden, and the one whose answers are this model's.
MODELS = {"llama3_tiny_f16_gguf": "llama3_tiny"} | {folder.parent.name: folder.parent.name for folder in GOLDEN.glob("*/cases.json")}


@pytest.mark.parametrize("name", sorted(MODELS))
def test_all_prompts_at_once_and_again_from_the_cache(start_daemon, name):
    cases = json.loads((GOLDEN / MODELS[name] / "cases.json").read_text())["cases"]
    daemon = start_daemon(cache={"layers": None, "model_dir": str(GOLDEN / name), "tokens_per_block": 16, "primary": 64})
    requests = "\n".join(json.dumps({"id": i, "prompt": case["prompt"], "max_new_tokens": len(case["ids"])}) for i, case in enumerate(cases))
    for turn in ("computed", "reused"):
        status, out, err = run("--connect", f"unix:{daemon.unix_socket}", "--model", str(GOLDEN / name), "--requests", "-", "--concurrency", "4",
                               "--max-step-tokens", "48", "--compute", "fp32", stdin=requests)
        assert status == 0, err
        answers = {answer["id"]: answer for answer in map(json.loads, out.splitlines())}
        assert [answers[i]["tokens"] for i in range(len(cases))] == [case["ids"] for case in cases]
        if turn == "reused":
            assert all(answers[i]["reused_tokens"] == len(case["prompt"]) - 1 for i, case in enumerate(cases))
