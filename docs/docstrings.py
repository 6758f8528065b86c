"""Hooks that let autodoc show the docstrings of the package pagoda, whose markup is Markdown.

* A docstring becomes reStructuredText.
* The description of a type alias is taken from the module that defines it.
* A type is linked to its public name: pagoda.values.Tier is described as pagoda.Tier.
"""

import importlib
import pathlib
import pkgutil
import re

from sphinx.errors import PycodeError
from sphinx.pycode import ModuleAnalyzer

ROOT = pathlib.Path(__file__).resolve().parents[1]
LIST_ITEM = re.compile(r"\s*([*-]|\d+\.) ")
# A line that begins a paragraph: a parameter or the list of errors.
NEW_PARAGRAPH = re.compile(r"(`\w+`(, `\w+`)*|Errors|Raises|Returns|[A-Z]\w+Error): ")
CODE_OR_PAGE = re.compile(r"`([^`]*)`|([\w./-]+)\.md\b")
NAME = re.compile(r"[A-Za-z_][\w.]*")
PUBLIC_MODULES = ("pagoda", "pagoda.aio", "pagoda.connector")


def _text(text):
    """reStructuredText that shows this text."""
    return re.sub(r"([\\*|]|(?<=\w)_(?!\w))", r"\\\1", text)


def _special(match):
    code, page = match.groups()
    if code is not None:
        return f"`{code}`" if NAME.fullmatch(code) else f"``{code}``"
    if (ROOT / f"{page}.md").is_file():
        return f":doc:`{page}.md </{page}>`"
    return _text(match.group())


def _line(line):
    marker = LIST_ITEM.match(line)
    start = marker.end() if marker else 0
    parts, end = [line[:start]], start
    for match in CODE_OR_PAGE.finditer(line, start):
        parts += [_text(line[end:match.start()]), _special(match)]
        end = match.end()
    return "".join([*parts, _text(line[end:])])


def to_rst(lines):
    """The lines of a docstring as lines of reStructuredText."""
    result, in_list, in_code, indent = [], False, False, 0
    for line in _join_code(lines):
        blank_before = not result or not result[-1].strip()
        indented = line.startswith("    ")
        if in_code and (indented or not line):
            result.append(line)
            continue
        in_code = indented and blank_before and not in_list
        if in_code:
            result += ["::", "", line]
            continue
        if line:
            item = LIST_ITEM.match(line)
            continued = not item and in_list and line.startswith("  ")
            ends = bool(item) != in_list and not continued
            if not blank_before and (ends or NEW_PARAGRAPH.match(line)):
                result.append("")
            in_list = bool(item) or continued
            if item:
                indent = item.end()
            elif continued:
                line = " " * indent + line.lstrip()
        result.append(_line(line))
    return result


def _join_code(lines):
    """The lines, of which one that ends within a code span has the rest of the span too."""
    joined = []
    for line in lines:
        line = line.rstrip()
        if joined and not joined[-1].startswith("    ") and line and joined[-1].count("`") % 2:
            joined[-1] += " " + line.lstrip()
        else:
            joined.append(line)
    return joined


def _alias_comment(name):
    """The description of a name in the module that defines it."""
    package = importlib.import_module("pagoda")
    for module in pkgutil.iter_modules(package.__path__, "pagoda."):
        try:
            comments = ModuleAnalyzer.for_module(module.name).find_attr_docs()
        except PycodeError:
            continue
        if ("", name) in comments:
            return comments[("", name)]
    return []


def _process(app, what, name, obj, options, lines):
    if what == "data" and not name.rpartition(".")[2].startswith("__"):
        lines[:0] = [*_alias_comment(name.rpartition(".")[2]), ""]
    lines[:] = to_rst(lines)


def _resolve(app, env, node, contnode):
    """The public name of a type of an internal module."""
    target = node.get("reftarget", "")
    if node.get("refdomain") != "py" or node.get("reftype") not in ("class", "obj", "data", "exc"):
        return None
    module, _, name = target.rpartition(".")
    candidates = ["pagoda", *(public for public in PUBLIC_MODULES if module.startswith(public + "."))]
    domain = env.get_domain("py")
    for public in reversed(candidates):
        if f"{public}.{name}" in domain.objects and (not module or module.startswith("pagoda")):
            return domain.resolve_xref(env, node["refdoc"], app.builder, "obj", f"{public}.{name}", node, contnode)
    return None


def connect(app):
    app.connect("autodoc-process-docstring", _process)
    app.connect("missing-reference", _resolve)
