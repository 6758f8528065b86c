"""The name of a request's KV: its tokens, and everything else that determines the KV of a token."""

import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pagoda.connector import Handover, Text
from pagoda.connector.model_identity import AdapterFiles
from pagoda.values import MultimodalItem, Namespace

if TYPE_CHECKING:
    from vllm.v1.request import Request


MOST_ADDRESS = 255  # Characters.

_adapters = AdapterFiles()


def text_of(request: "Request", tokens_per_block: int, *, takes_source: bool = True) -> Text:
    """The request in the form of the cache. The tokens are the request's own list, so they grow
    with it. `takes_source`: whether the daemon that the request names is its source."""
    source, source_tokens = source_of(request.kv_transfer_params) if takes_source else ("", 0)
    return Text(request.request_id, request.all_token_ids, _namespace(request), _items(request, tokens_per_block), source, source_tokens)


def source_of(kv_transfer_params: Mapping[str, Any] | None) -> tuple[str, int]:
    """The daemon that a request names, and the tokens that it has: handover_params of a prefill
    engine. ("", 0) if it names none. A client wrote this, so anything can be in it."""
    given = kv_transfer_params.get("pagoda") if isinstance(kv_transfer_params, Mapping) else None
    if not isinstance(given, Mapping):
        return "", 0
    source, tokens = given.get("source"), given.get("tokens")
    if not isinstance(source, str) or len(source) > MOST_ADDRESS:
        return "", 0
    return source, tokens if type(tokens) is int and tokens > 0 else 0


def asks_for_handover(kv_transfer_params: Mapping[str, Any] | None) -> bool:
    """Whether a request says that another engine continues it."""
    return isinstance(kv_transfer_params, Mapping) and kv_transfer_params.get("do_remote_decode") is True


def handover_params(handover: Handover) -> dict[str, Any]:
    """The kv_transfer_params of an answer. The decode engine's request carries them as they are."""
    return {"pagoda": {"source": handover.source, "tokens": handover.tokens}}


def _namespace(request: "Request") -> Namespace:
    """The cache salt and the adapter. The adapter is named by its name, path and files, because its
    number differs between engines. The files are looked at for each request, because vLLM can load
    an adapter again in place. The text begins with a prefix that no other salt can have, so
    that no salt looks like an adapter."""
    lora = request.lora_request
    if lora is None and not request.cache_salt:
        return Namespace()
    facts = ["salt", request.cache_salt]
    if lora is not None:
        facts = ["lora", lora.lora_name, lora.lora_path, _adapters.fingerprint(lora.lora_name, lora.lora_path), request.cache_salt or ""]
    text = json.dumps(facts)
    return Namespace(cache_salt=text if len(text) <= 200 else "sha256:" + hashlib.sha256(text.encode()).hexdigest())


def _items(request: "Request", tokens_per_block: int) -> tuple[MultimodalItem, ...]:
    """Images, audio and the like, and embeddings that replace tokens."""
    features = sorted(request.mm_features, key=lambda feature: feature.mm_position.offset)
    ends = [feature.mm_position.offset + feature.mm_position.length for feature in features]
    overlap = any(feature.mm_position.offset < end for feature, end in zip(features[1:], ends))
    if request.prompt_embeds is None and not overlap:
        return tuple(MultimodalItem(hashlib.sha256(feature.identifier.encode()).digest(), feature.mm_position.offset,
                                    feature.mm_position.length) for feature in features if feature.mm_position.length)
    return tuple(_items_by_block(request, features, tokens_per_block))


def _items_by_block(request: "Request", features: list[Any], tokens_per_block: int) -> list[MultimodalItem]:
    """One item per block, made from everything that lies in the block."""
    from vllm.v1.utils import tensor_data

    items = []
    for start in range(0, request.num_prompt_tokens, tokens_per_block):
        end = min(start + tokens_per_block, request.num_prompt_tokens)
        digest = hashlib.sha256()
        inside = [feature for feature in features
                  if feature.mm_position.offset < end and feature.mm_position.offset + feature.mm_position.length > start]
        for feature in inside:
            digest.update(json.dumps([feature.identifier, feature.mm_position.offset - start, feature.mm_position.length]).encode())
        if request.prompt_embeds is not None:
            digest.update(b"embeds" + bytes(tensor_data(request.prompt_embeds[start:end])))
        if inside or request.prompt_embeds is not None:
            items.append(MultimodalItem(digest.digest(), start, end - start))
    return items
