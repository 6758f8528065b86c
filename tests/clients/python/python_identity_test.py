"""What distinguishes KV in the connectors, without an engine. The modules of pagoda.vllm that are
loaded here need nothing of vLLM."""

import importlib.util
import json
import logging
import os
import pathlib
import sys
import types

import pytest
from pagoda.connector import LayerPages, PageLayout, RankPages, model_identity

FOLDER = pathlib.Path(model_identity.__file__).resolve().parents[1]


def load(name):
    spec = importlib.util.spec_from_file_location(f"loaded_{name.replace('/', '_')}", FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


keys, identity = load("vllm/keys"), load("vllm/identity")


@pytest.fixture
def adapter(tmp_path):
    (tmp_path / "adapter_model.safetensors").write_bytes(b"first")
    return types.SimpleNamespace(lora_name="tuned", lora_path=str(tmp_path))


def salt_of(adapter):
    request = types.SimpleNamespace(request_id="1", all_token_ids=[1, 2], num_prompt_tokens=2, cache_salt=None, lora_request=adapter,
                                    mm_features=[], prompt_embeds=None, kv_transfer_params=None)
    return keys.text_of(request, 16).namespace.cache_salt


@pytest.mark.parametrize("change", ["longer", "later", "gone"])
def test_an_adapter_whose_files_change_in_place_has_another_namespace(adapter, change, caplog):
    file = pathlib.Path(adapter.lora_path) / "adapter_model.safetensors"
    before = salt_of(adapter)
    assert salt_of(adapter) == before and not caplog.records
    if change == "longer":
        file.write_bytes(b"second one")
    elif change == "later":
        os.utime(file, ns=(1, 1))
    else:
        file.unlink()
    with caplog.at_level(logging.WARNING, "pagoda.connector"):
        assert salt_of(adapter) != before
    (record,) = caplog.records
    assert f"the files of adapter tuned in {adapter.lora_path} changed" in record.getMessage()


def test_an_adapter_in_the_home_folder_is_named_by_its_files(adapter, monkeypatch):
    """vLLM resolves the ~, but tells the connector the path as it was given."""
    file = pathlib.Path(adapter.lora_path) / "adapter_model.safetensors"
    monkeypatch.setenv("HOME", str(file.parents[1]))
    adapter.lora_path = f"~/{file.parent.name}"
    before = salt_of(adapter)
    file.write_bytes(b"second one")
    assert salt_of(adapter) != before


@pytest.fixture
def hub(monkeypatch):
    """The hub's package, with a cache of one file: hub(name, file, commit)."""
    cached = {}
    package = types.ModuleType("huggingface_hub")
    package.try_to_load_from_cache = lambda name, file, cache_dir, revision: cached.get((name, file))
    monkeypatch.setitem(sys.modules, "huggingface_hub", package)
    return lambda name, file, commit: cached.update({(name, file): f"/cache/models--{name}/snapshots/{commit}/{file}"})


def test_an_adapter_of_the_hub_is_named_by_its_commit(adapter, hub, caplog):
    adapter.lora_path = "org/tuned"
    hub("org/tuned", "adapter_config.json", "c0ffee")
    before = salt_of(adapter)
    assert salt_of(adapter) == before and "c0ffee" in before and not caplog.records
    hub("org/tuned", "adapter_config.json", "decade")
    after = salt_of(adapter)
    assert after != before and "decade" in after
    assert "org/tuned changed (decade, before c0ffee)" in caplog.text


def test_an_adapter_that_cannot_be_seen_is_shared_with_no_other_process(adapter, monkeypatch):
    adapter.lora_path = "/no/such/folder"
    before = salt_of(adapter)
    assert salt_of(adapter) == before
    monkeypatch.setattr(model_identity, "_PROCESS", "another")
    assert salt_of(adapter) != before


def test_few_adapters_are_remembered_for_the_log(adapter):
    files = model_identity.AdapterFiles()
    for number in range(files._MOST + 10):
        files.fingerprint("x", f"/no/such/path/{number}")
    assert len(files._last) == files._MOST


def configuration(*, rope=None, max_model_len=4096, calculates=False, **others):
    text = json.dumps({"max_position_embeddings": 131072, "rope_scaling": rope, **others})
    return types.SimpleNamespace(
        model_config=types.SimpleNamespace(hf_config=types.SimpleNamespace(to_json_string=lambda use_diff: text), dtype="torch.bfloat16",
                                           quantization=None, max_model_len=max_model_len),
        load_config=types.SimpleNamespace(load_format="auto"), cache_config=types.SimpleNamespace(calculate_kv_scales=calculates))


LONG = {"rope_type": "longrope", "original_max_position_embeddings": 4096}


def test_engines_with_short_and_with_long_factors_share_nothing():
    named = [identity.configuration_of(configuration(rope=LONG, max_model_len=length)) for length in (2048, 4096, 4097, 131072)]
    assert named[0] == named[1] != named[2] == named[3]
    # The field is beside rope_scaling in Phi's files; without it every length is its own.
    outside = {"rope": {"type": "su"}, "original_max_position_embeddings": 4096}
    assert identity.configuration_of(configuration(**outside, max_model_len=4096)) != \
        identity.configuration_of(configuration(**outside, max_model_len=4097))
    unknown = {"rope": {"rope_type": "longrope"}}
    assert identity.configuration_of(configuration(**unknown, max_model_len=100)) != \
        identity.configuration_of(configuration(**unknown, max_model_len=200))


def test_the_longest_request_does_not_matter_without_longrope():
    for rope in (None, {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096}):
        assert identity.configuration_of(configuration(rope=rope, max_model_len=100)) == \
            identity.configuration_of(configuration(rope=rope, max_model_len=131072))


def test_an_override_of_rope_scaling_is_another_identity():
    named = {identity.configuration_of(configuration(rope=rope))
             for rope in (None, {"rope_type": "yarn", "factor": 4.0}, {"rope_type": "yarn", "factor": 2.0}, {"rope_type": "linear", "factor": 2.0})}
    assert len(named) == 4
    assert identity.configuration_of(configuration(rope_theta=1e6)) != identity.configuration_of(configuration(rope_theta=1e4))


def test_scales_that_an_engine_measures_are_its_own(monkeypatch):
    calibrated = identity.configuration_of(configuration(calculates=True))
    assert calibrated != identity.configuration_of(configuration())
    assert calibrated == identity.configuration_of(configuration(calculates=True))
    monkeypatch.setattr(model_identity, "_PROCESS", "another")
    assert identity.configuration_of(configuration(calculates=True)) != calibrated


def test_other_scales_in_the_checkpoint_are_another_revision(tmp_path):
    """A checkpoint has the scales of 8-bit KV in its weights or in a JSON file beside them."""
    for name in ("model.safetensors", "kv_cache_scales.json"):
        (tmp_path / name).write_text("scales")
        before = model_identity.revision_of(str(tmp_path), None)
        assert model_identity.revision_of(str(tmp_path), None) == before
        (tmp_path / name).write_text("other scales")
        assert model_identity.revision_of(str(tmp_path), None) != before


@pytest.mark.parametrize("part, fact, value", [("model_config", "dtype", "torch.float16"), ("model_config", "quantization", "fp8"),
                                               ("load_config", "load_format", "dummy")])
def test_the_type_and_the_kind_of_weights_are_in_the_identity(part, fact, value):
    config = configuration()
    before = identity.configuration_of(config)
    setattr(getattr(config, part), fact, value)
    assert identity.configuration_of(config) != before


def test_another_attention_backend_is_another_identity(tmp_path):
    """Where it packs a page in another way, and also where it does not."""
    layer = LayerPages("layer.0", group=0, window=0, pieces=1, heads=1, chunk_bytes=128, shard=0, shards=1, is_writer=True)
    config = configuration()
    config.model_config.model, config.model_config.revision = str(tmp_path), None
    config.load_config.download_dir, config.cache_config.cache_dtype = None, "auto"
    made = []
    for backend in ("FLASH_ATTN", "FLASHINFER"):
        layout = PageLayout.merge([RankPages(stage=0, layers=(layer,), packing=f"{backend}:HNC:vllm-0.32")], block_sizes=[16])
        whose = identity.identity_of(config, layout)
        made.append((whose.kernel_packing, identity.cache_name(whose, layout)))
    assert made[0][0] != made[1][0] and made[0][1] != made[1][1]


@pytest.fixture
def sglang(monkeypatch):
    """The part of SGLang's published configuration that the identity reads, and the identity."""
    options = load("sglang/options")
    context = types.ModuleType("sglang.srt.runtime_context")
    served = types.SimpleNamespace(model_path="m", revision=None, kv_cache_dtype="auto", quantization=None, json_model_override_args="{}",
                                   context_length=None, quantization_param_path=None, load_format="auto")
    lora = types.SimpleNamespace(lora_paths=None)
    context.get_model, context.get_lora = lambda: served, lambda: lora
    for name in ("sglang", "sglang.srt"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, "sglang.srt.runtime_context", context)
    return served, lora, lambda: options.identity("kv", model="m", dtype="torch.bfloat16", layout="x", options=options.KeyedOptions())


@pytest.mark.parametrize("fact, value", [("json_model_override_args", '{"rope_scaling": {"type": "yarn"}}'), ("context_length", 8192),
                                         ("quantization_param_path", "scales.json"), ("kv_cache_dtype", "fp8_e5m2"), ("quantization", "fp8")])
def test_sglangs_settings_that_change_kv_are_in_the_identity(sglang, fact, value):
    served, _, identity_now = sglang
    before = identity_now()
    assert identity_now() == before
    setattr(served, fact, value)
    assert identity_now() != before


def test_an_adapter_of_sglangs_start_is_named_by_its_files(sglang, adapter):
    _, lora, identity_now = sglang
    plain, lora.lora_paths = identity_now(), [adapter]
    before = identity_now()
    assert before != plain and identity_now() == before
    (pathlib.Path(adapter.lora_path) / "adapter_model.safetensors").write_bytes(b"second one")
    assert identity_now() != before


def test_an_adapter_of_sglangs_start_and_of_the_hub_is_named_by_its_commit(sglang, adapter, hub):
    _, lora, identity_now = sglang
    adapter.lora_path, lora.lora_paths = "org/tuned", [adapter]
    hub("org/tuned", "adapter_config.json", "c0ffee")
    before = identity_now()
    assert identity_now() == before
    hub("org/tuned", "adapter_config.json", "decade")
    assert identity_now() != before


@pytest.fixture
def offloading(monkeypatch):
    """The tier below vLLM's offloading, and the configuration that it finds there. Of vLLM there
    are only the names that it imports."""
    found = types.SimpleNamespace(whole=None)
    names = {"vllm": ["__version__"], "vllm.config": [], "vllm.v1.kv_offload.config": ["OffloadingConfig"],
             "vllm.v1.kv_offload.base": ["LookupResult", "Medium", "OffloadingSpec", "OffloadKey", "ReqContext", "RequestOffloadingContext",
                                         "ScheduleEndContext"],
             "vllm.v1.kv_offload.tiering.async_lookup": ["AsyncLookupManager"], "vllm.v1.kv_offload.tiering.spec": ["TieringOffloadingSpec"],
             "vllm.v1.kv_offload.tiering.base": ["JobResult", "SecondaryTierManager", "TransferJob"]}
    for name, members in names.items():
        module = types.ModuleType(name)
        for member in members:
            setattr(module, member, type(member, (), {"CPU": "CPU"}))
        monkeypatch.setitem(sys.modules, name, module)
    for name, module in {"pagoda.vllm": types.ModuleType("pagoda.vllm"), "pagoda.vllm.identity": identity}.items():
        monkeypatch.setitem(sys.modules, name, module)
    sys.modules["vllm.config"].get_current_vllm_config_or_none = lambda: found.whole
    return load("vllm/offloading"), found


def test_vllms_own_offloading_refuses_adapters_because_its_keys_do_not_name_their_files(offloading):
    module, found = offloading
    parallel = types.SimpleNamespace(is_parallelism_agnostic=True)
    told = types.SimpleNamespace(groups=(), cache=types.SimpleNamespace(tokens_per_hash=16, blocks_per_chunk=1), kv_cache_layout=None,
                                 canonical_layout=False, replicated_layout=False, parallel=parallel,
                                 model=types.SimpleNamespace(name="org/model", dtype="bfloat16"))
    found.whole = configuration()
    found.whole.model_config.model, found.whole.model_config.revision = "org/model", None
    found.whole.load_config.download_dir, found.whole.lora_config = None, None
    assert module.identity_of(told, 4096, module.KeyedOptions()).model == "org/model"
    found.whole.lora_config = object()
    with pytest.raises(ValueError, match="without --enable-lora"):
        module.identity_of(told, 4096, module.KeyedOptions())
