"""Parts of the vLLM connector without an engine: keys, pages, identity, options."""

import types

import pytest

pytest.importorskip("vllm", reason="vLLM is not installed")

import torch
from pagoda.connector import Handover, PageLayout
from pagoda.connector.model_identity import fingerprint
from pagoda.vllm import keys, pages
from pagoda.vllm.options import WHERE, Options


def request(**changes):
    """The part of a vLLM request that keys reads."""
    facts = {"request_id": "1", "all_token_ids": list(range(100)), "num_prompt_tokens": 100, "cache_salt": None, "lora_request": None,
             "mm_features": [], "prompt_embeds": None, "kv_transfer_params": None}
    return types.SimpleNamespace(**facts | changes)


def image(name, offset, length):
    return types.SimpleNamespace(identifier=name, mm_position=types.SimpleNamespace(offset=offset, length=length))


def adapter(name, path):
    return types.SimpleNamespace(lora_name=name, lora_path=str(path))


def test_salts_and_adapters_name_spaces_of_their_own(tmp_path):
    first, second = tmp_path / "a", tmp_path / "b"
    for folder, text in ((first, "1"), (second, "22")):
        folder.mkdir()
        (folder / "adapter_model.safetensors").write_text(text)
    plain = keys.text_of(request(), 16).namespace
    spaces = [plain, keys.text_of(request(cache_salt="x"), 16).namespace,
              keys.text_of(request(lora_request=adapter("l", first)), 16).namespace,
              keys.text_of(request(lora_request=adapter("l", second)), 16).namespace,
              keys.text_of(request(lora_request=adapter("l", first), cache_salt="x"), 16).namespace,
              keys.text_of(request(cache_salt="y" * 1000), 16).namespace]
    # A request cannot use another namespace with a salt that looks like that namespace's salt.
    spaces += [keys.text_of(request(cache_salt=space.cache_salt), 16).namespace for space in spaces[1:]]
    assert len(set(spaces)) == len(spaces)
    assert plain.cache_salt == ""


def test_a_request_names_the_daemon_that_has_its_prefix():
    given = keys.handover_params(Handover("node-a:7075", 64))
    named = keys.text_of(request(kv_transfer_params=given | {"do_remote_prefill": True}), 16)
    assert (named.source, named.source_tokens) == ("node-a:7075", 64)
    assert keys.text_of(request(kv_transfer_params=given), 16, takes_source=False).source == ""


@pytest.mark.parametrize("given", [None, [], "pagoda", {}, {"pagoda": None}, {"pagoda": "node-a:7075"}, {"pagoda": {"tokens": 64}},
                                   {"pagoda": {"source": 7, "tokens": 64}}, {"pagoda": {"source": "a" * 300, "tokens": 64}}], ids=str)
def test_what_clients_write_there_may_be_anything(given):
    assert keys.source_of(given) == ("", 0)


@pytest.mark.parametrize("tokens", [None, -1, 1.5, True, "64"])
def test_a_source_without_a_number_of_tokens_is_asked_too(tokens):
    assert keys.source_of({"pagoda": {"source": "node-a:7075", "tokens": tokens}}) == ("node-a:7075", 0)


@pytest.mark.parametrize("given, asks", [(None, False), ({}, False), ({"do_remote_decode": True}, True), ({"do_remote_decode": False}, False),
                                         ({"do_remote_decode": "yes"}, False), ([], False)], ids=str)
def test_a_request_asks_to_be_continued_elsewhere(given, asks):
    assert keys.asks_for_handover(given) is asks


def test_images_are_items_and_overlapping_ones_are_items_by_block():
    (item,) = keys.text_of(request(mm_features=[image("cat", 10, 20)]), 16).items
    (other,) = keys.text_of(request(mm_features=[image("dog", 10, 20)]), 16).items
    assert (item.token_start, item.token_count) == (10, 20) and item.digest != other.digest
    overlapping = keys.text_of(request(mm_features=[image("film", 10, 40), image("sound", 20, 10)]), 16).items
    assert [(one.token_start, one.token_count) for one in overlapping] == [(0, 16), (16, 16), (32, 16), (48, 16)]


def test_embeddings_name_their_own_block_alone():
    embeds = torch.randn(100, 8, dtype=torch.bfloat16)
    changed = embeds.clone()
    changed[40] += 1
    first, second = (keys.text_of(request(prompt_embeds=one), 16).items for one in (embeds, changed))
    assert len(first) == 7
    assert [a == b for a, b in zip(first, second)] == [True, True, False, True, True, True, True]


@pytest.mark.parametrize("order, heads", [("HNC", 4), ("NHC", 1)])
def test_a_page_is_one_run_of_bytes_in_any_order(order, heads):
    if order == "HNC":
        memory = torch.arange(10 * 4 * 16 * 8, dtype=torch.bfloat16).view(10, 4, 16, 8)
    else:
        memory = torch.arange(10 * 16 * 4 * 8, dtype=torch.bfloat16).view(10, 16, 4, 8).permute(0, 2, 1, 3)
    view, apart = pages._as_bytes("layer", memory, 10)
    assert view.shape == (10, 1, heads, 16 * 4 * 8 * 2 // heads) and apart == (order == "HNC")
    view[3] = 0
    assert (memory[3] == 0).all() and (memory[2] != 0).all() and (memory[4] != 0).all()


def test_kernels_blocks_are_pieces_and_a_padded_page_is_refused():
    view, _ = pages._as_bytes("layer", torch.zeros(40, 2, 16, 8), 10)
    assert view.shape == (10, 4, 2, 16 * 8 * 4)
    with pytest.raises(pages.NotCacheable):
        pages._as_bytes("layer", torch.zeros(10, 2, 16, 16)[..., :8], 10)


def layout(**changes):
    from pagoda.connector import LayerPages, RankPages

    facts = {"name": "layers.0", "group": 0, "window": 0, "pieces": 1, "heads": 2, "chunk_bytes": 512, "shard": 0, "shards": 1, "is_writer": True}
    return PageLayout.merge([RankPages(0, (LayerPages(**facts | changes),), "backend")], [16])


def test_another_arrangement_of_as_many_bytes_is_another_layout():
    assert len({layout(**changes).digest() for changes in ({}, {"pieces": 2, "chunk_bytes": 256}, {"heads": 4, "chunk_bytes": 256},
                                                           {"window": 64})}) == 4
    # The number of ranks does not change the digest.
    assert layout(heads=1, shards=2).digest() == layout().digest()


def test_a_changed_file_is_another_revision(tmp_path):
    (tmp_path / "model.safetensors").write_text("weights")
    before = fingerprint(tmp_path)
    (tmp_path / "model.safetensors").write_text("other weights")
    assert fingerprint(tmp_path) != before


def test_options_say_what_is_wrong():
    assert Options.take({"timeout": 2, "host": "1GiB"}, where=WHERE).timeout == 2
    assert Options.take({"fetch_from_store": "never"}, where=WHERE).fetch_from_store == "never"
    for wrong in ({"endpont": "x"}, {"timeout": "1s"}, {"timeout": True}, {"timeout": -1}, {"cache": 3}, {"host": []}, {"disk": True},
                  {"fetch_from_store": "always"}, {"fetch_from_store": True}, {"export_lease": 0}):
        with pytest.raises(ValueError, match="kv_connector_extra_config"):
            Options.take(wrong, where=WHERE)
