"""The Python function and the test vectors of events/README.md agree, computed with the system's own libxxhash."""

import ast
import ctypes
import re
import sys
import types

import pytest
import tree

PAGE = (tree.ROOT / "events" / "README.md").read_text()
ROW = re.compile(r"^\| `\[.*\|$", re.MULTILINE)


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


def token_list(text):
    """[1, 2] or [*range(8)]."""
    many = re.fullmatch(r"\[\*range\((\d+)\)\]", text)
    return list(range(int(many[1]))) if many else ast.literal_eval(text)


def test_every_vector_is_what_the_function_gives(document):
    rows = ROW.findall(PAGE)
    assert len(rows) == 8
    for row in rows:
        tokens, tokens_per_block, lora_id, salt, hashes = (cell.strip(" `") for cell in row.strip("|").split("|"))
        computed = document.block_hashes(token_list(tokens), int(tokens_per_block),
                                         int(lora_id) if lora_id else None, salt)
        assert [f"{one:016x}" for one in computed] == re.findall(r"[0-9a-f]{16}", hashes), tokens


def test_the_roots_are_what_the_function_gives(document):
    roots = PAGE[PAGE.index("The roots of the namespaces"):]
    expected = [document.namespace_hash(0), document.namespace_hash(7), document.namespace_hash(None, "tenant-a"),
                document.namespace_hash(7, "tenant-a")]
    assert re.findall(r"`([0-9a-f]{16})`", roots) == [f"{root:016x}" for root in expected]
