"""KV that slots hold as float8: what comes back, and a real vLLM on it."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import pagoda  # noqa: E402
from engine_processes import Daemon, Vllm, connector  # noqa: E402
from pagoda.connector.float8 import RUN, Float8  # noqa: E402

BLOCK = 32
TYPES = [torch.bfloat16, torch.float16, torch.float32]


def chunks_of(dtype, numbers):
    """(blocks, 1, heads, bytes)."""
    return numbers.to(dtype).view(torch.uint8)


@pytest.mark.parametrize("dtype", TYPES)
def test_elements_come_back_within_their_bounds(dtype):
    torch.manual_seed(1)
    codec = Float8(dtype)
    # The magnitudes of the runs differ by up to 2^20.
    numbers = (torch.randn(16, 1, 4, 8 * RUN) * torch.exp2(torch.randint(-10, 10, (16, 1, 4, 8, 1))).expand(-1, -1, -1, -1, RUN).flatten(-2)).to(dtype)
    numbers[0, 0, 0, :RUN] = 0
    given = chunks_of(dtype, numbers)
    stored = codec.encode(given)
    assert stored.shape == (16, 1, 4, codec.stored_bytes(given.shape[-1])) and codec.stored_bytes(given.shape[-1]) == 8 * (RUN + 4)
    back = codec.decode(stored).view(dtype)
    assert back.shape == numbers.shape and not back[0, 0, 0, :RUN].any()
    wanted = numbers.double()
    largest = wanted.unflatten(-1, (-1, RUN)).abs().amax(-1, keepdim=True).expand(-1, -1, -1, -1, RUN).flatten(-2)
    # The bound includes the rounding of the result to its type.
    bound = torch.maximum(wanted.abs() / 16, largest / 450_000) + back.double().abs() * torch.finfo(dtype).eps + torch.finfo(dtype).smallest_normal
    assert ((back.double() - wanted).abs() <= bound).all()
    # The codec changes the numbers: most elements are rounded.
    assert (back != numbers).float().mean() > 0.5
    # Rounded numbers stay the same: KV that is loaded and saved again does not drift.
    again = codec.decode(codec.encode(back.view(torch.uint8))).view(dtype)
    assert torch.equal(again, back) if dtype is not torch.float32 else torch.allclose(again, back, rtol=1e-6, atol=0)


@pytest.mark.parametrize("dtype", TYPES)
def test_what_is_not_finite_is_nan_with_its_run_and_no_other(dtype):
    codec = Float8(dtype)
    numbers = torch.ones(3, 1, 1, 2 * RUN).to(dtype)
    numbers[0, 0, 0, 5], numbers[1, 0, 0, 5] = float("nan"), float("inf")
    back = codec.decode(codec.encode(chunks_of(dtype, numbers))).view(dtype)
    for block in (0, 1):
        assert back[block, 0, 0, :RUN].isnan().all() and torch.equal(back[block, 0, 0, RUN:], numbers[block, 0, 0, RUN:])
    assert torch.equal(back[2], numbers[2])


def test_arrays_of_numpy_and_views_are_taken():
    codec = Float8(torch.float32)
    whole = torch.randn(6, 2, 3, 2 * RUN)
    view = whole.view(torch.uint8).numpy()[::2, 1:]
    stored = codec.encode(view)
    assert isinstance(stored, np.ndarray)
    assert np.array_equal(stored, codec.encode(whole[::2, 1:].contiguous().view(torch.uint8)).numpy())
    wider = np.zeros((3, 2, *stored.shape[2:]), np.uint8)
    wider[:, :1] = stored
    assert np.array_equal(codec.decode(wider[:, :1]), codec.decode(stored))


def test_what_has_no_such_form_is_refused():
    with pytest.raises(ValueError, match="uint8 cannot be stored as float8"):
        Float8(torch.uint8)
    with pytest.raises(ValueError, match="in runs of 64 elements, and a head has 100 bytes"):
        Float8(torch.bfloat16).stored_bytes(100)


def test_a_real_vllm(models, prompts, tmp_path):
    """Whole blocks come back, in 17/64 of float32's bytes. The model's output is nearly that with
    exact KV, which is another cache."""
    pytest.importorskip("vllm", reason="vLLM is not installed")
    asked = prompts(100, 200, 300)
    options = {"max_tokens": 1, "logprobs": 20}
    with Daemon(tmp_path / "daemon") as daemon:
        with Vllm(tmp_path, models("qwen3"), kv_transfer_config=connector(daemon), name="exact") as vllm:
            exact = vllm.generate(asked, **options)
            assert exact["cached"] == [0, 0, 0]
        with Vllm(tmp_path, models("qwen3"), kv_transfer_config=connector(daemon, stored_dtype="fp8_e4m3"), name="float8") as vllm:
            computed = vllm.generate(asked, **options)
            assert computed["cached"] == [0, 0, 0]
            assert differences(computed, exact) == [0, 0, 0]
            assert vllm.reset()
            again = vllm.generate(asked, **options)
            assert again["cached"] == [(len(prompt) - 1) // BLOCK * BLOCK for prompt in asked]
            assert all(0 < difference < 0.5 for difference in differences(again, exact)), differences(again, exact)
        sizes = []
        for name in pagoda.list_caches(daemon.endpoint):
            with pagoda.connect(daemon.endpoint, cache=name.name) as session:
                sizes.append(sum(pool.strides[0] for pool in session.pools()))
    small, large = sorted(sizes)
    assert small * 64 == large * 17


def differences(answers, others):
    """The largest one of the log-probabilities that both have, by prompt."""
    return [max(abs(one[token] - other[token]) for token in one.keys() & other.keys())
            for one, other in zip(answers["logprobs"], others["logprobs"])]
