"""Bounds the methods of a class and the lines of a function, for style.py.

LIST names the classes and functions that are above a cap, one a line: path, name, size, unit. It
must equal what the files hold. update() writes it anew for files that moved, and refuses sizes that
grew. Who adds a line by hand is seen by a reviewer alone. Overloads of one name have a line each.
"""

import itertools
import pathlib

import code_shape

MOST = {"methods": 60, "lines": 70}
LIST = pathlib.Path("tests/tools/too_large.txt")
HEADER = """\
# Classes with more than 60 methods and functions with more than 70 lines. Add none.
# tests/tools/style.py requires that each line is true, and --update-list writes the list anew.
"""
READERS = {".h": code_shape.cpp_shape, ".cc": code_shape.cpp_shape, ".cu": code_shape.cpp_shape,
           ".cuh": code_shape.cpp_shape, ".py": code_shape.python_shape}


def sizes_above_caps(root, files):
    """The sizes above a cap, largest first, by (path, name, unit). Raises code_shape.Unreadable."""
    above = {}
    for path in files:
        if path.suffix not in READERS:
            continue
        try:
            classes, functions = READERS[path.suffix]((root / path).read_text())
        except code_shape.Unreadable as error:
            raise code_shape.Unreadable(f"{path}: {error}") from error
        sizes = [("methods", *part) for part in classes] + [("lines", *part) for part in functions]
        for unit, name, size in sizes:
            if size > MOST[unit]:
                above.setdefault((str(path), name, unit), []).append(size)
    return {key: sorted(sizes, reverse=True) for key, sizes in sorted(above.items())}


def list_text(above):
    lines = [f"{path} {name} {size} {unit}\n" for (path, name, unit), sizes in above.items() for size in sizes]
    return HEADER + "".join(lines)


def listed_sizes(text):
    """What a list says, as sizes_above_caps() does, and the lines that say nothing."""
    listed, wrong = {}, []
    for line in text.splitlines():
        words = line.split()
        if line.startswith("#"):
            continue
        if len(words) != 4 or not words[2].isdigit() or words[3] not in MOST:
            wrong.append(line)
            continue
        listed.setdefault((words[0], words[1], words[3]), []).append(int(words[2]))
    return {key: sorted(sizes, reverse=True) for key, sizes in listed.items()}, wrong


def grown(before, after):
    """The names with more or larger sizes in `after` than in `before`, wherever their files are."""
    def by_name(sizes):
        named = {}
        for (_, name, unit), found in sizes.items():
            named.setdefault((name, unit), []).extend(found)
        return {key: sorted(found, reverse=True) for key, found in named.items()}

    old = by_name(before)
    return [f"{name}: {new or 0} {unit}, and {was or 0} before"
            for (name, unit), sizes in by_name(after).items()
            for new, was in itertools.zip_longest(sizes, old.get((name, unit), []))
            if (new or 0) > (was or 0)]


def update(root, files):
    """Writes LIST anew, unless a size grew. Returns what grew."""
    before, _ = listed_sizes((root / LIST).read_text())
    above = sizes_above_caps(root, files)
    larger = grown(before, above)
    if not larger:
        (root / LIST).write_text(list_text(above))
    return larger


def violations(root, files):
    text = (root / LIST).read_text() if (root / LIST).is_file() else ""
    listed, wrong = listed_sizes(text)
    found = [f"{LIST}: not `path name size unit`: {line}" for line in wrong]
    try:
        above = sizes_above_caps(root, files)
    except code_shape.Unreadable as error:
        return found + [str(error)]
    for key in sorted(listed.keys() | above.keys()):
        path, name, unit = key
        for size, allowed in itertools.zip_longest(above.get(key, []), listed.get(key, [])):
            if size is None:
                found.append(f"{LIST}: take out {path} {name} {allowed}: nothing there has more than {MOST[unit]} {unit}")
            elif allowed is None:
                found.append(f"{path}: {name} has {size} {unit}; split it, {MOST[unit]} are the most")
            elif size > allowed:
                found.append(f"{path}: {name} has {size} {unit}; it grew, {LIST} has {allowed}")
            elif size < allowed:
                found.append(f"{LIST}: {path} {name}: lower its number from {allowed} to {size}")
    return found
