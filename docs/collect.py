"""Copies the pages of the manual into a folder for Sphinx.

    /usr/bin/python3 docs/collect.py FOLDER

* Every Markdown file of the tree keeps its path. docs/index.md becomes the site's first page, and
  docs/reference/ becomes reference/.
* A source file that a Markdown file links to becomes a page with the highlighted text: the page of
  pools/types.h is pools/types.h.html. A folder becomes its README, or a page that lists its files.
* An image is copied.

The links are changed in the copies. A link to a missing file is an error.
"""

import argparse
import os
import pathlib
import re
import shutil
import sys
import urllib.parse

import pygments.lexers
import pygments.util
from markdown_it import MarkdownIt

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path.insert(0, str(ROOT / "tests" / "tools"))
import tree  # noqa: E402

FENCE = re.compile(r"^\s*(```|~~~)")
# Pygments takes a header for C.
LANGUAGES = {".h": "cpp", ".cu": "cuda", ".cuh": "cuda"}
REFERENCE = HERE.relative_to(ROOT) / "reference"
INDEX = HERE.relative_to(ROOT) / "index.md"


def place_of(path):
    """The path of a Markdown file's copy in the folder for Sphinx."""
    return pathlib.Path("index.md") if path == INDEX else path


def targets_of(text):
    """The targets of the links and images of a Markdown text that name a file of the tree."""
    found = set()
    for token in MarkdownIt("commonmark").enable("table").parse(text):
        for child in token.children or []:
            target = child.attrGet("href") or child.attrGet("src")
            if not target or child.type not in ("link_open", "image"):
                continue
            parts = urllib.parse.urlsplit(target)
            if parts.path and not parts.scheme and not parts.netloc:
                found.add(target)
    return sorted(found)


def replace_target(text, old, new):
    """The text with the other target in its links, but not in its code blocks."""
    lines, fenced = text.split("\n"), False
    for number, line in enumerate(lines):
        if FENCE.match(line):
            fenced = not fenced
        elif not fenced:
            lines[number] = line.replace(f"]({old})", f"]({new})")
    return "\n".join(lines)


def language_of(path, text):
    """Pygments' name for the language of a source file."""
    if path.suffix in LANGUAGES:
        return LANGUAGES[path.suffix]
    try:
        return pygments.lexers.guess_lexer_for_filename(path.name, text).aliases[0]
    except pygments.util.ClassNotFound:
        return "text"


class Collector:
    """Copies the files of `root` into `folder`. `errors` has a line for each broken link."""

    def __init__(self, root, folder):
        self.root, self.folder, self.errors = root, folder, []
        self._files = {path for path in tree.project_files(root) if not (root / path).is_symlink()}

    def run(self):
        for path in sorted(self._files):
            if path.suffix == ".md":
                self._copy_page(path)
            elif path.is_relative_to(REFERENCE):
                self._put(path.relative_to(REFERENCE.parent), (self.root / path).read_text())

    def _put(self, path, text):
        place = self.folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)

    def _copy_page(self, path):
        text = (self.root / path).read_text()
        for target in targets_of(text):
            new = self._resolve(path, target)
            if new is None:
                self.errors.append(f"{path}: the link to {target} leads to no file of the tree")
            elif new != target:
                text = replace_target(text, target, new)
        self._put(place_of(path), text)

    def _resolve(self, page, target):
        """The target for the copy of `page`, or None. Makes the page that it leads to."""
        parts = urllib.parse.urlsplit(target)
        named = pathlib.Path(os.path.normpath(page.parent / urllib.parse.unquote(parts.path)))
        if named in self._files:
            place = place_of(named) if named.suffix == ".md" else self._source(named)
        elif any(file.is_relative_to(named) for file in self._files):
            place = self._listing(named)
        else:
            return None
        fragment = f"#{parts.fragment}" if parts.fragment and named.suffix == ".md" else ""
        return os.path.relpath(place, place_of(page).parent) + fragment

    def _source(self, path):
        """The place of an image, or of the page of a source file."""
        place = self.folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(self.root / path, place)
        try:
            text = place.read_text()
        except UnicodeDecodeError:
            return path
        page = path.with_name(path.name + ".md")
        self._put(page, f"---\norphan: true\n---\n\n# `{path}`\n\n```{{literalinclude}} {path.name}\n"
                        f":language: {language_of(path, text)}\n```\n")
        return page

    def _listing(self, folder):
        """The place of a folder's README, or of a page that lists its files."""
        readme = folder / "README.md"
        if readme in self._files:
            return readme
        page = folder / "index.md"
        links = []
        for file in sorted(file for file in self._files if file.is_relative_to(folder)):
            place = file if file.suffix == ".md" else self._source(file)
            links.append(f"* [`{file.relative_to(folder)}`]({place.relative_to(folder)})\n")
        self._put(page, f"---\norphan: true\n---\n\n# `{folder}/`\n\n" + "".join(links))
        return page


def main():
    parser = argparse.ArgumentParser(description="Copies the pages of the manual into a folder for Sphinx.")
    parser.add_argument("folder", type=pathlib.Path)
    collector = Collector(ROOT, parser.parse_args().folder)
    collector.run()
    for error in collector.errors:
        print(error)
    return 1 if collector.errors else 0


if __name__ == "__main__":
    sys.exit(main())
