"""documents.py finds each violation that is planted for it, and nothing in a clean tree."""

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import documents
import tree

LONG = "word " * 20 + "end"
CODE = "x = 1  # " + LONG + "\n"
PAGE = """# Pools

A [link](pools/README.md#the-slots-of-a-pool), a [folder](pools/) and `pools/a.cc`.

## The `slots` of a pool

```sh
""" + LONG + """
[no link](nowhere.md) `pools/none.cc` the commons
```
"""
CLEAN = {"README.md": PAGE, "pools/README.md": PAGE.replace("pools/", "../pools/"), "pools/a.cc": "// A pool.\n" + CODE,
         "pools/a.py": f'"""A pool."""\n\n{CODE}'}


def check(root, files):
    for name, text in (CLEAN | files).items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return documents.violations(root, tree.project_files(root))


def test_a_clean_tree_is_left_alone(tmp_path):
    assert check(tmp_path, {}) == []


@pytest.mark.parametrize("name, text, message", [
    # Columns.
    ("pools/b.md", f"{LONG}\n", "pools/b.md:1: 103 columns"),
    ("pools/b.md", f"| {LONG} |\n", "pools/b.md:1: 107 columns"),
    ("pools/b.md", f"```\n```\n{LONG}\n", "pools/b.md:3: 103 columns"),
    ("pools/b.cc", f"int x;\n  // {LONG}\n", "pools/b.cc:2: 108 columns"),
    ("pools/b.proto", f"// {LONG}\n", "pools/b.proto:1: 106 columns"),
    ("pools/b.sh", f"#!/bin/sh\n# {LONG}\n", "pools/b.sh:2: 105 columns"),
    ("pools/CMakeLists.txt", f"# {LONG}\n", "pools/CMakeLists.txt:1: 105 columns"),
    ("pools/b.py", f"x = 1\n# {LONG}\n", "pools/b.py:2: 105 columns"),
    ("pools/b.py", f'def f():\n    """One.\n\n    {LONG}\n    """\n', "pools/b.py:4: 107 columns"),
    # Links.
    ("pools/b.md", "A [link](a.h).\n", "pools/b.md: the link to a.h leads to nothing"),
    ("pools/b.md", "A [link](../../README.md).\n", "pools/b.md: the link to ../../README.md leads to nothing"),
    ("pools/b.md", "A [link of\ntwo lines](a.h).\n", "pools/b.md: the link to a.h leads to nothing"),
    ("pools/b.md", "A [link][1].\n\n[1]: a.h\n", "pools/b.md: the link to a.h leads to nothing"),
    ("pools/b.md", "A [link](../README.md#slots).\n", "pools/b.md: the link to ../README.md#slots leads to no heading"),
    ("pools/b.md", "A [link](#slots).\n\n```\n# Slots\n```\n", "pools/b.md: the link to #slots leads to no heading"),
    # File names.
    ("pools/b.md", "One\n`pools/b.cc`\n", "pools/b.md:2: there is no pools/b.cc"),
    ("pools/b.md", "`b.cc`\n", "pools/b.md:1: there is no b.cc"),
    ("pools/b.md", "`ools/a.cc`\n", "pools/b.md:1: there is no ools/a.cc"),
    ("pools/b.md", "`tests/pools/`\n", "pools/b.md:1: there is no tests/pools/"),
    ("pools/b.md", "`DESIGN.md`\n", "pools/b.md:1: there is no DESIGN.md"),
    # Old words.
    ("pools/b.md", "The commons take it.\n", 'pools/b.md:1: "The commons"; use "the default tenant"'),
    ("pools/b.cc", "int x;\n// An unheld block.\n", 'pools/b.cc:2: "unheld"; use "evictable"'),
    ("pools/b.py", '"""Rejected drafts."""\n', 'pools/b.py:1: "drafts"; use "draft tokens"'),
    ("pools/b.sh", "# Rules of the house.\n", 'pools/b.sh:1: "the house"; use "the project"'),
])
def test_a_violation_is_found(tmp_path, name, text, message):
    (found,) = check(tmp_path, {name: text})
    assert found.startswith(message)


@pytest.mark.parametrize("name, text", [
    ("pools/b.md", f"[{LONG}](../README.md)\n"),
    ("pools/b.md", f"* [{LONG}](../README.md)\n"),
    ("pools/b.md", "See https://example.org/" + "a" * 100 + "\n"),
    ("events/README.md", f"| {LONG} |\n"),
    ("pools/b.py", f'x = """\n{LONG}\n# {LONG}\n"""\n'),
    ("pools/b.cc", f'const char* x = "{LONG}";  // One.\n'),
    ("pools/b.md", "# A\n# A\n## B (of C), `d_e`\n[1](#a-1) [2](#b-of-c-d_e) [3](https://example.org/#x) `[4](a.h)`\n"),
    ("pools/b.md", "`a.cc` `pools/a.cc:7` `pools` `pools/<name>.cc`\n`pools/*.cc` `build/bin/a` `NAME.cc` `/proc/self` `a::b`\n"),
    ("pools/b.md", "A house number, a common word, a drafted text, a warehouse. It spoke.\n"),
])
def test_a_right_text_is_left_alone(tmp_path, name, text):
    assert check(tmp_path, {name: text}) == []


def test_a_sentence_is_counted_without_tables_and_headings():
    page = "# One two\n\nThree `four five` [six seven](x.md). Eight,\nnine.\n\n* Ten\n* Eleven: twelve\n\n| thirteen |\n"
    assert list(documents.sentences(page)) == ["Three Name six seven.", "Eight, nine.", "Ten", "Eleven: twelve"]
    assert documents.lengths_of_sentences([page]) == (4, 2, 4)


@pytest.mark.parametrize("text", [
    ("word " * documents.MAX_MEDIAN + "end.\nA ") * 20,
    # The median is 1. One sentence in ten is longer than the bound of the 95th percentile.
    ("One.\n" * 9 + "A " + "word\n" * documents.MAX_95TH + "end.\n") * 3,
])
def test_long_sentences_are_found(tmp_path, text):
    (found,) = check(tmp_path, {"pools/b.md": f"A {text}\n"})
    assert found.startswith("the sentences are too long")


def test_a_count_of_libraries_is_that_of_the_build(tmp_path):
    build = {"wire/CMakeLists.txt": "pagoda_library(a SRCS a.cc)\npagoda_library(b SRCS b.cc)\n"}
    assert check(tmp_path, build | {"wire/README.md": "The folder builds two libraries:\n"}) == []
    (found,) = check(tmp_path, build | {"wire/README.md": "The folder builds four libraries:\n"})
    assert found == "wire/README.md:1: four libraries; wire/CMakeLists.txt has 2"


def test_a_reason_that_is_still_there_was_not_removed(tmp_path):
    table = {"base/error.cc": 'Row{Reason::kHere, "STILL_HERE"},\n'}
    assert check(tmp_path, table | {"CHANGELOG.md": "### Removed\n\n* `GONE_AWAY`.\n\n### Fixed\n\n* `STILL_HERE`.\n"}) == []
    (found,) = check(tmp_path, table | {"CHANGELOG.md": "### Removed\n\n* `STILL_HERE`.\n"})
    assert found == "CHANGELOG.md:3: STILL_HERE is removed here, but base/error.cc has it"


@pytest.mark.parametrize("name", ["README.md", "deploy/run.sh"])
def test_a_command_leaves_the_memory_of_other_daemons_alone(tmp_path, name):
    lines = "```sh\nrm -f /dev/shm/{}*\n```\n"
    assert check(tmp_path, {name: lines.format("pagoda-tour-")}) == []
    for everything in ("pagoda-", "pagoda", ""):
        (found,) = check(tmp_path, {name: lines.format(everything)})
        assert found.startswith(f"{name}:2: removes the memory of every daemon")
