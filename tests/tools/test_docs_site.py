"""The checks of the manual find each planted error, and nothing in a right site. The programs of
docs/ that make its pages do what they promise."""

import pathlib
import sys

import pytest

sys.path[:0] = [str(pathlib.Path(__file__).parent), str(pathlib.Path(__file__).parents[2] / "docs")]
import docs_site
import tree

descriptor_pb2 = pytest.importorskip("google.protobuf.descriptor_pb2")
import proto_reference

TREE = {
    "README.md": "# P\n",
    "docs/index.md": "# Manual\n",
    "proto/pagoda/v1/cache.proto": "package pagoda.v1;\nservice Cache {\n  // rpc Old(A) went.\n  rpc Open(A) returns (B);\n}\n",
    "clients/python/src/pagoda/__init__.py": '__all__ = ["connect"]\n',
    "clients/python/src/pagoda/aio/__init__.py": '__all__ = ["watch"]\n',
}
SITE = {
    "index.html": '<a href="README.html#p">P</a><a href="https://example.org/none">out</a><a href="#">top</a>',
    "README.html": '<h1 id="p">P</h1><span id="pagoda-v1-cache-open"></span><a href="a/b.html#pagoda.connect">c</a>',
    "a/b.html": '<dt id="pagoda.connect"></dt><dt id="pagoda.aio.watch"></dt><img src="../p.png"><a href="../index.html">i</a>',
    "p.png": "",
}


def plant(folder, files):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def found_in(tmp_path, files, site):
    root, built = plant(tmp_path / "tree", files), plant(tmp_path / "site", site)
    return docs_site.violations(root, tree.project_files(root, ".md"), built)


def test_a_right_site_is_left_alone(tmp_path):
    assert found_in(tmp_path, TREE, SITE) == []


@pytest.mark.parametrize("files, site, word", [
    ({"pools/README.md": "# Pools\n"}, {}, "pools/README.md: the site has no page"),
    ({}, {"index.html": '<a href="none.html">x</a>'}, "leads to no file"),
    ({}, {"index.html": '<img src="none.png">'}, "leads to no file"),
    ({}, {"index.html": '<a href="../index.html">x</a>'}, "leads to no file"),
    ({}, {"index.html": '<a href="README.html#q">x</a>'}, "leads to no anchor"),
    ({}, {"index.html": '<a href="#q">x</a>'}, "leads to no anchor"),
    ({"proto/pagoda/v1/b.proto": "package pagoda.v1;\nservice B {\n  rpc Run(A) returns (B);\n}\n"}, {}, "pagoda.v1.B.Run"),
    ({"proto/pagoda/v1/cache.proto": "package pagoda.v1;\n"}, {}, "found no call"),
    ({"clients/python/src/pagoda/__init__.py": '__all__ = ["connect", "Pool"]\n'}, {}, "pagoda.Pool"),
    ({"clients/python/src/pagoda/aio/__init__.py": '__all__ = ["watch", "connect"]\n'}, {}, "pagoda.aio.connect"),
])
def test_a_planted_error_is_found(tmp_path, files, site, word):
    found = found_in(tmp_path, {**TREE, **files}, {**SITE, **site})
    assert len(found) == 1 and word in found[0]


def described():
    """A file with a call, a oneof, an enum and a nested message, as protoc describes it."""
    file = descriptor_pb2.FileDescriptorProto(name="pagoda/v1/a.proto", package="pagoda.v1")
    comments = file.source_code_info.location
    service = file.service.add(name="PoolService")
    service.method.add(name="OpenPool", input_type=".pagoda.v1.OpenPoolRequest", output_type=".pagoda.v1.Kind", server_streaming=True)
    message = file.message_type.add(name="OpenPoolRequest")
    message.oneof_decl.add(name="size")
    kind = proto_reference.Field
    message.field.add(name="bytes", number=1, type=kind.TYPE_UINT64, label=kind.LABEL_OPTIONAL, oneof_index=0)
    message.field.add(name="kinds", number=2, type=kind.TYPE_ENUM, type_name=".pagoda.v1.Kind", label=kind.LABEL_REPEATED)
    message.nested_type.add(name="Inner")
    file.enum_type.add(name="Kind").value.add(name="KIND_HOST", number=0)
    comments.add(path=[6, 0, 2, 0], leading_comments=" See OpenPoolRequest.kinds and `Kind`, not Kind or [0, n).\n")
    comments.add(path=[5, 0, 2, 0], trailing_comments=" In memory.\n")
    return descriptor_pb2.FileDescriptorSet(file=[file])


@pytest.mark.parametrize("line", [
    "(pagoda.v1.PoolService.OpenPool)=",
    "`rpc PoolService.OpenPool` takes [`OpenPoolRequest`](pagoda.v1.OpenPoolRequest), returns stream [`Kind`](pagoda.v1.Kind)",
    "See [`OpenPoolRequest.kinds`](pagoda.v1.OpenPoolRequest.kinds) and [`Kind`](pagoda.v1.Kind), not Kind or \\[0, n).",
    "  - `uint64`, in oneof `size`",
    "  - repeated [`Kind`](pagoda.v1.Kind)",
    "(pagoda.v1.OpenPoolRequest.Inner)=",
    "* - (pagoda.v1.Kind.KIND_HOST)=",
    "  - In memory.",
])
def test_the_proto_reference_has_every_part(line):
    assert line in proto_reference.pages(described())["a"].split("\n")


def test_the_collector_changes_links_and_names_the_broken_ones(tmp_path):
    pytest.importorskip("pygments")
    collect = pytest.importorskip("collect")
    root = plant(tmp_path / "tree", {
        "README.md": "[s](pools/pool.h) [f](pools) [m](a/B.md#c) [w](https://example.org) [x](#p)\n```\n[s](pools/pool.h)\n```\n",
        "docs/index.md": "[r](../README.md)\n", "a/B.md": "[none](../none.h)\n", "pools/pool.h": "int x;\n"})
    collector = collect.Collector(root, tmp_path / "out")
    collector.run()
    first, *rest = (tmp_path / "out" / "README.md").read_text().split("\n")
    assert first == "[s](pools/pool.h.md) [f](pools/index.md) [m](a/B.md#c) [w](https://example.org) [x](#p)"
    assert rest[1] == "[s](pools/pool.h)"
    assert (tmp_path / "out" / "index.md").read_text() == "[r](README.md)\n"
    assert "literalinclude} pool.h\n:language: cpp\n" in (tmp_path / "out" / "pools" / "pool.h.md").read_text()
    assert collector.errors == ["a/B.md: the link to ../none.h leads to no file of the tree"]


def test_a_docstring_becomes_rst():
    docstrings = pytest.importorskip("docstrings")
    lines = ["Runs a * b of `step`, see", "`x = 1`.", "* one", "  more", "Then.", "", "    code(1)", "", "Errors: NONE.", "`a`: b."]
    assert docstrings.to_rst(lines) == [
        "Runs a \\* b of `step`, see", "``x = 1``.", "", "* one", "  more", "", "Then.", "", "::", "", "    code(1)", "",
        "Errors: NONE.", "", "`a`: b."]
