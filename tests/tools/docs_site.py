"""Builds the manual with docs/build.sh, and checks the site.

    /usr/bin/python3 tests/tools/docs_site.py FOLDER

FOLDER/docs gets the site. Skips (exit 77) if a package that the build needs is not installed.

* Every Markdown file of the tree has a page.
* Every call of proto/pagoda/v1 and every public name of the Python package has an anchor.
* Every link within the site leads to a file and, if it names an anchor, to that anchor.
"""

import ast
import html.parser
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys
import urllib.parse

import tree

PACKAGE = pathlib.Path("clients/python/src/pagoda")
PROTOS = pathlib.Path("proto/pagoda/v1")
MODULES = ("sphinx", "myst_parser", "furo", "grpc", "google.protobuf", "numpy")


class Page(html.parser.HTMLParser):
    """The anchors of a page and the targets of its links."""

    def __init__(self, path):
        super().__init__()
        self.anchors, self.targets = set(), []
        self.feed(path.read_text())

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        if given.get("id"):
            self.anchors.add(given["id"])
        if tag == "a" and given.get("name"):
            self.anchors.add(given["name"])
        target = given.get("src") or given.get("href")
        if target and tag in ("a", "img", "link", "script"):
            self.targets.append(target)


def read_site(site):
    """Every page of the site, by its path."""
    return {path.relative_to(site): Page(path) for path in sorted(site.rglob("*.html"))}


def missing_pages(files, pages):
    for path in files:
        page = pathlib.Path("index.html") if path == pathlib.Path("docs/index.md") else path.with_suffix(".html")
        if path.suffix == ".md" and page not in pages:
            yield f"{path}: the site has no page of it"


def calls(root):
    """The full name of every call of the proto files."""
    for path in sorted((root / PROTOS).glob("*.proto")):
        text = re.sub(r"//.*", "", path.read_text())
        package = re.search(r"^package ([\w.]+);", text, re.MULTILINE).group(1)
        for service in re.finditer(r"^service (\w+) \{(.*?)^\}", text, re.MULTILINE | re.DOTALL):
            for call in re.findall(r"\brpc (\w+)\(", service.group(2)):
                yield f"{package}.{service.group(1)}.{call}"


def public_names(root):
    """The full name of every name in an __all__ of the Python package."""
    for path in sorted((root / PACKAGE).rglob("__init__.py")):
        module = ".".join(path.parent.relative_to((root / PACKAGE).parent).parts)
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.Assign) and [getattr(target, "id", "") for target in node.targets] == ["__all__"]:
                for name in ast.literal_eval(node.value):
                    yield f"{module}.{name}"


def missing_anchors(root, pages):
    anchors = set().union(*(page.anchors for page in pages.values()))
    for kind, names, anchor_of in (("call", calls(root), lambda name: name.lower().replace(".", "-")),
                                   ("Python name", public_names(root), lambda name: name)):
        names = list(names)
        if not names:
            yield f"found no {kind}"
        for name in names:
            if anchor_of(name) not in anchors:
                yield f"{name}: the site has no anchor of this {kind}"


def broken_links(site, pages):
    for path, page in pages.items():
        for target in sorted(set(page.targets)):
            parts = urllib.parse.urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            named = pathlib.Path(os.path.normpath(path.parent / urllib.parse.unquote(parts.path))) if parts.path else path
            anchor = urllib.parse.unquote(parts.fragment)
            if named.parts[:1] == ("..",) or not (site / named).is_file():
                yield f"{path}: the link to {target} leads to no file"
            elif anchor and named in pages and anchor not in pages[named].anchors:
                yield f"{path}: the link to {target} leads to no anchor"


def violations(root, files, site):
    pages = read_site(site)
    return [*missing_pages(files, pages), *missing_anchors(root, pages), *broken_links(site, pages)]


def is_installed(module):
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def main():
    out = pathlib.Path(sys.argv[1]).resolve() / "docs"
    missing = [module for module in MODULES if not is_installed(module)]
    missing += [] if shutil.which("protoc") else ["protoc"]
    if missing:
        print(f"SKIPPED: not installed: {', '.join(missing)}")
        return 77
    subprocess.run([tree.ROOT / "docs" / "build.sh", "--out", out], check=True)
    files = tree.project_files(tree.ROOT, ".md")
    return tree.report("docs_site", files, violations(tree.ROOT, files, out / "html"))


if __name__ == "__main__":
    sys.exit(main())
