"""Every kind of model talks: pagodactl chats with it in a daemon, and pagoda-engine --local without
one. The answers are the same over the paged cache of a daemon, over the engine's own, and over
contiguous memory."""

import json
import subprocess

import pagodactl
import pytest
import talking_models
from engine_process import PAGODA_ENGINE

FOLDERS = ["phi3_tiny", "qwen3_moe_tiny", "deepseek_v2_tiny", "deepseek_v3_tiny", "gpt_oss_tiny", "gpt_oss_tiny_mxfp4", "bloom_tiny"]
LINES = "Hello there\nAnd what then?\n"


def answers(command):
    done = subprocess.run(list(map(str, command)), input=LINES, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("name", [*FOLDERS, "q4_k"])
def test_a_model_talks(start_daemon, tmp_path, name):
    model = talking_models.q4_k_file(tmp_path / "model.gguf") if name == "q4_k" else talking_models.folder(tmp_path / "model", name)
    alone = {}
    for kv in ("paged", "basic"):
        alone[kv] = answers([PAGODA_ENGINE, "--local", "--model", model, "--kv", kv, "-o", "json", "--max-new-tokens", 24, "--compute", "fp32"])
        assert [answer["generated_tokens"] > 0 for answer in alone[kv]] == [True, True]
    assert [answer["tokens"] for answer in alone["paged"]] == [answer["tokens"] for answer in alone["basic"]]

    daemon = start_daemon(engine={"model_dir": str(model), "compute": "fp32"}, cache={"layers": None, "primary": 256, "tokens_per_block": 8, "kv_dtype": "float32"})
    served = answers(pagodactl.command(daemon, "chat", "-o", "json", "--max-new-tokens", "24"))
    assert [turn["text"] for turn in served] == [answer["text"] for answer in alone["paged"]]
    # The second turn finds what the first one computed.
    assert served[1]["report"]["reused_tokens"] > 0
