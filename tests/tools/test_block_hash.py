"""The Python function and the test vectors of events/README.md agree, computed with the system's
own libxxhash."""

import ctypes
import re
import sys
import types

import pytest
import tree

PAGE = (tree.ROOT / "events" / "README.md").read_text()
ROW = re.compile(r"^\| `\[.*\|$", re.MULTILINE)
KEYED_ROW = re.compile(r"^\| keyed.*\|$", re.MULTILINE)


@pytest.fixture(scope="module")
def document():
    """The README's function, run with libxxhash in the place of the xxhash package."""
    library = ctypes.CDLL("libxxhash.so.0")
    library.XXH3_64bits_withSeed.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint64]
    library.XXH3_64bits_withSeed.restype = ctypes.c_uint64
    package = types.ModuleType("xxhash")
    package.xxh3_64_intdigest = lambda data, seed: library.XXH3_64bits_withSeed(data, len(data), seed)
    names = {}
    (code,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "xxhash", package)
        exec(code, names)  # pylint: disable=exec-used
    return types.SimpleNamespace(**names)


DIGESTS = {"D": bytes(range(32)), "E": bytes([255] * 32)}


def value(text):
    """[1, 2], [*range(8)], [(D, 1, 6, 0)] or [b"a"]."""
    return eval(text, {"__builtins__": {}, "range": range, "bytes": bytes}, DIGESTS)  # pylint: disable=eval-used


def namespace(text):
    """adapter 7, salt `s`, tenant `acme`: the arguments of namespace_hash."""
    names = dict(re.findall(r"(adapter|salt|tenant) `?([\w-]+)`?", text))
    return {"lora_id": int(names["adapter"]) if "adapter" in names else None,
            "cache_salt": names.get("salt", ""), "tenant": names.get("tenant", ""), "keyed": "keyed" in text}


def test_every_vector_is_what_the_function_gives(document):
    rows = ROW.findall(PAGE)
    assert len(rows) == 18
    for row in rows:
        tokens, tokens_per_block, name, extra_ids, items, hashes = (cell.strip() for cell in row.strip("|").split("|"))
        computed = document.block_hashes(value(tokens.strip("`")), int(tokens_per_block),
                                         document.namespace_hash(**namespace(name)),
                                         value(extra_ids.strip("`")) if extra_ids else None,
                                         value(items.strip("`")) if items else ())
        assert [f"{one:016x}" for one in computed] == re.findall(r"[0-9a-f]{16}", hashes), row


def test_the_roots_are_what_the_function_gives(document):
    roots = PAGE[PAGE.index("The roots of the namespaces:"):].partition(":")[2].split(";")
    assert len(roots) == 7
    for root in roots:
        name, published = re.fullmatch(r"(.*) `([0-9a-f]{16})`\.?", " ".join(root.split())).groups()
        assert f"{document.namespace_hash(**namespace(name)):016x}" == published, name


def test_every_vector_of_keys_is_what_the_function_gives(document):
    rows = KEYED_ROW.findall(PAGE)
    assert len(rows) == 5
    roots = set()
    for row in rows:
        name, keys, hashes = (cell.strip() for cell in row.strip("|").split("|"))
        root = document.namespace_hash(**namespace(name))
        roots.add(f"{root:016x}")
        computed = document.key_hashes(value(keys.strip("`")), root)
        assert [f"{one:016x}" for one in computed] == re.findall(r"[0-9a-f]{16}", hashes), row
    (told,) = re.findall(r"^Of keyed namespaces, whose roots are (.*):$", PAGE, re.MULTILINE)
    assert set(re.findall(r"[0-9a-f]{16}", told)) == roots
