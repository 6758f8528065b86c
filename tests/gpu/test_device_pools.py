"""A daemon whose primary tier is a real GPU's memory, its clients, and the bundled engine on it.
tests/e2e/tiers/test_gpu_tiers.py does the same with a fake driver.

Needs a GPU and PAGODA_BIN with pagodad, pagodactl, pagoda-engine and gpu_pool_client.
"""

import json
import os
import pathlib
import subprocess

import pagoda
import pytest
from daemon import BIN, pagodad

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no CUDA device", allow_module_level=True)

GOLDEN = pathlib.Path(os.environ["PAGODA_GOLDEN"])
LAYERS = [{"count": 2, "num_kv_heads": 2, "head_dim": 8}, {"count": 1, "num_kv_heads": 1, "head_dim": 8}]
CACHE = {"tokens_per_block": 4, "kv_dtype": "float32", "primary_memory": "cuda", "primary": 8, "secondary": 16, "layers": LAYERS}
PROMPTS = 6  # Each has three blocks: more than the primary tier holds, but not more than both tiers.
MODELS = sorted(folder.parent.name for folder in GOLDEN.glob("*tiny*/cases.json"))


def run_client(endpoint, *arguments):
    done = subprocess.run([BIN / "gpu_pool_client", endpoint, *map(str, arguments)], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout + done.stderr


def test_blocks_are_offloaded_and_onboarded_with_their_bytes(tmp_path):
    with pagodad(tmp_path, cache=CACHE) as endpoint:
        assert "the primary tier lies in GPU memory: cuda:0, NVIDIA" in (tmp_path / "pagodad.log").read_text()
        assert run_client(endpoint, "write", 1, PROMPTS) == (0, f"cuda:0: {3 * PROMPTS} blocks, 0 wrong\n")
        for _ in range(20):
            assert run_client(endpoint, "check", 1, PROMPTS) == (0, f"cuda:0: {3 * PROMPTS} blocks, 0 wrong\n")
        status, output = run_client(endpoint, "check", 2, PROMPTS)
        assert status == 1 and not output.endswith(" 0 wrong\n")


def test_pytorch_reads_and_writes_the_daemons_pool(tmp_path):
    with pagodad(tmp_path, cache=CACHE) as endpoint, pagoda.connect(endpoint) as session:
        (pool, *_) = session.pools(tier=pagoda.Tier.PRIMARY)
        tensor = torch.as_tensor(pool.device_array, device="cuda")
        assert tuple(tensor.shape) == pool.shape
        tensor.view(torch.uint8)[3] = 5
        torch.cuda.synchronize()
        assert set(pool.device_array.read_slot(3).tobytes()) == {5}
        # A second mapping of the same memory.
        with pagoda.connect(endpoint) as other:
            (again, *_) = other.pools(tier=pagoda.Tier.PRIMARY)
            assert int((torch.as_tensor(again.device_array, device="cuda").view(torch.uint8)[3] != 5).sum()) == 0


@pytest.mark.parametrize("model", MODELS)
def test_an_engine_on_the_gpu_answers_as_transformers_do(tmp_path, model):
    """With the daemon's pools in GPU memory; the second run reads from the cache."""
    cases = json.loads((GOLDEN / model / "cases.json").read_text())["cases"]
    requests = "\n".join(json.dumps({"id": i, "prompt": case["prompt"], "max_new_tokens": len(case["ids"])}) for i, case in enumerate(cases))
    cache = {"model_dir": str(GOLDEN / model), "tokens_per_block": 16, "primary_memory": "cuda", "primary": 64, "kv_dtype": "float32"}
    with pagodad(tmp_path, cache=cache) as endpoint:
        for reused in (False, True):
            command = [BIN / "pagoda-engine", "--connect", endpoint, "--model", GOLDEN / model, "--requests", "-", "--compute", "fp32",
                       "--concurrency", "4", "--max-step-tokens", "48"]
            done = subprocess.run(command, input=requests, capture_output=True, text=True, timeout=120)
            assert done.returncode == 0, done.stderr
            assert "cuda" in done.stderr, done.stderr
            answers = {answer["id"]: answer for answer in map(json.loads, done.stdout.splitlines())}
            assert [answers[i]["tokens"] for i in range(len(cases))] == [case["ids"] for case in cases]
            if reused:
                assert all(answer["reused_tokens"] == answer["prompt_tokens"] - 1 for answer in answers.values())


def test_the_daemons_own_engine_computes_over_two_tiers(tmp_path):
    """The GPU's tier holds one prompt at a time. The others are offloaded to the host, and
    onboarded when they are requested again."""
    model = GOLDEN / "qwen3_tiny"
    cases = json.loads((model / "cases.json").read_text())["cases"]
    cache = {"tokens_per_block": 16, "primary_memory": "cuda", "primary": 24, "secondary": 256, "kv_dtype": "float32"}
    with pagodad(tmp_path, cache=cache, engine={"model_dir": str(model), "backend": "cuda", "compute": "fp32"}) as endpoint:
        log = (tmp_path / "pagodad.log").read_text()
        assert "model loaded:" in log and "on cuda:0" in log, log
        for _ in range(3):
            for case in cases:
                command = [BIN / "pagodactl", "--endpoint", endpoint, "generate", "--prompt-tokens", ",".join(map(str, case["prompt"])),
                           "--max-new-tokens", str(len(case["ids"])), "-o", "json"]
                done = subprocess.run(command, capture_output=True, text=True, timeout=60)
                assert done.returncode == 0, done.stderr
                assert json.loads(done.stdout)["tokens"] == case["ids"]
        status = subprocess.run([BIN / "pagodactl", "--endpoint", endpoint, "status", "-o", "json"], capture_output=True, text=True, timeout=60)
        (window,) = json.loads(status.stdout)["windows"]
        assert int(window["onboarded_blocks_total"]) > 0, window
