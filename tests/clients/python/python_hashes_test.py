"""The Python package without a daemon: the published hashes, and mappings in huge pages."""

import ctypes
import mmap
import pathlib
import random
import re

import pagoda
import pytest
from pagoda import _huge_pages, _xxh3, events, hashes

ROOT = pathlib.Path(__file__).resolve().parents[3]

LIBRARY = ctypes.CDLL("libxxhash.so.0")
LIBRARY.XXH3_64bits_withSeed.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint64]
LIBRARY.XXH3_64bits_withSeed.restype = ctypes.c_uint64


def test_xxh3_in_python_is_the_librarys():
    dice = random.Random(8)
    sizes = [*range(300), *(64 * stripes + more for stripes in range(4, 40) for more in (-1, 0, 1)), 8192]
    for size in sizes:
        data = dice.randbytes(size)
        for seed in (0, 1, 0xFFFFFFFFFFFFFFFF, dice.getrandbits(64)):
            assert _xxh3.xxh3_64_intdigest(data, seed=seed) == LIBRARY.XXH3_64bits_withSeed(data, size, seed), (size, seed)


def vectors():
    """The rows of events/README.md: tokens, tokens per block, namespace, extra ids, items as
    tuples, hashes."""
    names = {"__builtins__": {}, "range": range}
    digests = {"D": bytes(range(32)), "E": bytes([255] * 32)}
    page = (ROOT / "events" / "README.md").read_text()
    for row in re.findall(r"^\| `\[.*\|$", page, re.M):
        tokens, size, name, extras, items, expected = (cell.strip().strip("`") for cell in row.strip("|").split("|"))
        said = dict(re.findall(r"(adapter|salt|tenant) `?([\w-]+)`?", name))
        namespace = pagoda.Namespace(int(said["adapter"]) if "adapter" in said else None, said.get("salt", ""), said.get("tenant", ""))
        parts = [pagoda.MultimodalItem(*item) for item in eval(items or "[]", names, digests)]  # pylint: disable=eval-used
        yield eval(tokens, names), int(size), namespace, eval(extras or "[]", names), parts, re.findall(r"[0-9a-f]{16}", expected)


@pytest.mark.parametrize("xxh3", [hashes._xxh3_64, _xxh3.xxh3_64_intdigest])
def test_block_hashes_are_those_of_the_document(monkeypatch, xxh3):
    monkeypatch.setattr(hashes, "_xxh3_64", xxh3)
    rows = list(vectors())
    assert len(rows) == 18
    for tokens, size, namespace, extra_ids, items, expected in rows:
        found = pagoda.block_hashes(tokens, size, namespace=namespace, extra_token_ids=extra_ids, multimodal_items=items)
        assert [f"{one:016x}" for one in found] == expected
    item = pagoda.MultimodalItem(bytes(32), 1, 6)
    halves = [pagoda.MultimodalItem(bytes(32), 1, 2), pagoda.MultimodalItem(bytes(32), 3, 4, item_offset=2)]
    whole = pagoda.block_hashes(range(8), 4, multimodal_items=[item])
    assert pagoda.block_hashes(range(8), 4, multimodal_items=halves) == whole, "the hash depends on the item, not on how it is split"
    with pytest.raises(ValueError, match="extra ids"):
        pagoda.block_hashes(range(8), 4, extra_token_ids=[1])


LIMITS = [
    # The text of /proc/self/cgroup, the files that exist, whether pages of 2 MiB are limited.
    ("0::/\n", {}, False),
    ("0::/\n", {"hugetlb.2MB.max": "max"}, False),
    ("0::/\n", {"hugetlb.2MB.max": "0"}, True),
    ("0::/\n", {"hugetlb.1GB.max": "0"}, False),
    ("0::/pods/one\n", {"pods/one/hugetlb.2MB.max": "max", "pods/hugetlb.2MB.max": "4194304"}, True),
    ("0::/pods/one\n", {"pods/two/hugetlb.2MB.max": "0"}, False),
    ("4:memory:/a\n3:hugetlb:/a\n0::/\n", {"hugetlb/a/hugetlb.2MB.limit_in_bytes": "2097152"}, True),
    ("3:hugetlb:/a\n0::/\n", {"hugetlb/a/hugetlb.2MB.limit_in_bytes": "9223372036854771712"}, False),
    ("4:memory:/a\n", {"memory/a/hugetlb.2MB.limit_in_bytes": "0", "hugetlb.2MB.max": "0"}, False),
]


@pytest.mark.parametrize("cgroups, files, limited", LIMITS)
def test_a_limit_of_huge_pages_is_found_where_the_cgroup_or_one_above_has_it(tmp_path, cgroups, files, limited):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    assert _huge_pages.is_limited(pagoda.MemoryPages.HUGE_2MIB, cgroups, tmp_path) == limited


@pytest.mark.parametrize("pages", list(pagoda.MemoryPages))
def test_a_mapping_in_any_pages_is_prepared(pages):
    with mmap.mmap(-1, 4 << 20) as mapped:
        _huge_pages.prepare(mapped, pages, writable=True)
        mapped[3 << 20] = 7
        assert mapped[3 << 20] == 7


def test_pages_that_a_cgroup_refuses_are_an_error_and_not_a_signal(monkeypatch):
    class Refused:
        def madvise(self, option):
            assert option == (23 if self.writable else 22)
            raise OSError(14, "Bad address")

    monkeypatch.setattr(_huge_pages, "is_limited", lambda *_: True)
    for writable in (False, True):
        refused = Refused()
        refused.writable = writable
        with pytest.raises(pagoda.CannotMap, match="hugetlb.1GB.*huge_pages: off"):
            _huge_pages.prepare(refused, pagoda.MemoryPages.HUGE_1GIB, writable)


def test_key_hashes_are_those_of_the_document():
    page = (ROOT / "events" / "README.md").read_text()
    rows = re.findall(r"^\| keyed \| `(\[.*\])` \| (.*) \|$", page, re.MULTILINE)
    assert len(rows) == 4
    for keys, expected in rows:
        found = pagoda.key_hashes(eval(keys))  # pylint: disable=eval-used
        assert [f"{one:016x}" for one in found] == re.findall(r"[0-9a-f]{16}", expected), keys
    (whole,) = pagoda.key_hashes([bytes(range(32))], namespace=pagoda.Namespace(7, "s", "acme"))
    assert f"{whole:016x}" == "0d5d6c9230a366f1"
    for key in (b"", bytes(65)):
        with pytest.raises(ValueError, match="1 to 64"):
            pagoda.key_hashes([key])
    with pytest.raises(TypeError, match="chain of keys"):
        pagoda.key_hashes(b"abc")
