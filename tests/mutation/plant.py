"""Plants the faults of faults/ in a copy of the core and of the rings.

    /usr/bin/python3 tests/mutation/plant.py --check | --out FOLDER | --refresh

The first line of each faults/<Name>.patch says what goes wrong. The patch changes one .cc of
manager/ or wire/ring/, and adds PAGODA_FAULT(<Name>) to it once. plant.py finds a hunk by its
lines, which are in the file exactly once. Only `git apply` uses the line numbers.

--check    Every patch applies, alone and with all the others. The list in tests/mutation/FAULTS.md
           is that of the patches, in their words. Nothing outside tests/ knows of planted faults.
--out      Writes the files that the patches change to FOLDER, with all faults in them, and the
           faults' names to FOLDER/tests/mutation/faults.def.
--refresh  Writes each patch again, with the line numbers and the context of the present tree. It
           finds code that moved to another file, or whose surroundings changed, if only one place
           is possible, and says so.
"""

import argparse
import dataclasses
import itertools
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "tools"))
import tree

FAULTS = pathlib.Path("tests/mutation/faults")
LIST = pathlib.Path("tests/mutation/FAULTS.md")
NAMES_FILE = pathlib.Path("tests/mutation/faults.def")
INCLUDE = '#include "tests/mutation/fault.h"'
CORE = "manager/ or wire/ring/"
CONTEXT = 3
# (lines before, lines after). If a hunk's whole context is no longer there, it is found by this
# part of its context.
NEARER = [(2, 2), (1, 1), (3, 0), (0, 3), (2, 0), (0, 2), (0, 0)]
TELLING = 8  # The fewest characters of a line that can identify a place. A lone brace cannot.

HUNK = re.compile(r"^@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")
CORE_SOURCE = re.compile(r"^(?:manager|wire/ring)/[\w/]+\.cc$")
PLANTED = re.compile(r"\bPAGODA_FAULT(?:\((\w+)\))?")
LISTED = re.compile(r"^\* `(\w+)`: (.+?)\.\n  Caught by\s+`([\w./]+)`\.$", re.MULTILINE | re.DOTALL)
TRACE = re.compile(r"PAGODA_FAULT|PAGODA_PLANTED_FAULTS|\bfault\.h\b|\bfaults\.def\b")
TRACED = (".h", ".cc", ".cu", ".cuh", ".def", ".py", ".sh", ".proto", ".cmake", "CMakeLists.txt", ".md", ".yaml")


class BadPatch(Exception):
    """A patch that cannot be read or planted; the message names it."""


@dataclasses.dataclass
class Hunk:
    counts: tuple  # Old and new lines, as its @@ says.
    lines: list  # Each a mark (" ", "-" or "+") and a text.

    def side(self, mark):
        """The old lines ("-") or the new ones ("+")."""
        return [text for other, text in self.lines if other in (" ", mark)]

    def nearer(self, before, after):
        """The hunk with less context around its changes."""
        changed = [number for number, (mark, _) in enumerate(self.lines) if mark != " "]
        return Hunk(self.counts, self.lines[max(0, changed[0] - before):changed[-1] + 1 + after])


@dataclasses.dataclass
class Patch:
    fault: str
    what: str
    path: str
    hunks: list

    @property
    def name(self):
        return f"{self.fault}.patch"


@dataclasses.dataclass(frozen=True)
class Edit:
    """Lines of the original from `start` on, and what stands in their place."""
    start: int
    end: int
    fault: str
    added: tuple

    def meets(self, other):
        """Whether both change one line, or one inserts lines between lines that the other
        changes."""
        if self.start == self.end and other.start == other.end:
            return False
        return self.start < other.end and other.start < self.end


def parse(name, text):
    """The patch of this file name."""
    lines = text.removesuffix("\n").split("\n")
    if len(lines) < 4 or not lines[0] or lines[1] or not lines[2].startswith("--- a/") or not lines[3].startswith("+++ b/"):
        raise BadPatch(f"{name}: it begins with what goes wrong, an empty line, '--- a/FILE' and '+++ b/FILE'")
    path = lines[2].removeprefix("--- a/")
    if lines[3] != f"+++ b/{path}":
        raise BadPatch(f"{name}: its '---' and its '+++' name two files")
    hunks = []
    for line in lines[4:]:
        header = HUNK.match(line)
        if header:
            hunks.append(Hunk(tuple(int(count or "1") for count in header.groups()), []))
        elif line.startswith("--- a/"):
            raise BadPatch(f"{name}: it changes more than one file")
        elif hunks and (not line or line[0] in " +-"):
            # Editors and git leave out the blank of an empty context line.
            hunks[-1].lines.append((line[:1] or " ", line[1:]))
        else:
            raise BadPatch(f"{name}: no line of a patch: {line}")
    if not hunks or not all(any(mark != " " for mark, _ in hunk.lines) for hunk in hunks):
        raise BadPatch(f"{name}: a patch, or a hunk of it, changes nothing")
    return Patch(name.removesuffix(".patch"), lines[0], path, hunks)


def read_patches(root):
    """The patches that can be read, and what is wrong with the others."""
    patches, problems = [], []
    for path in sorted((root / FAULTS).glob("*.patch")):
        try:
            patches.append(parse(path.name, path.read_text()))
        except BadPatch as problem:
            problems.append(str(problem))
    return patches, problems


def read_list(root):
    """By fault what goes wrong and the test that catches it, in the order of the list."""
    entries = LISTED.findall((root / LIST).read_text())
    return {name: (" ".join(what.split()), test) for name, what, test in entries}


def read_faults(root):
    """By fault what its patch says: the listed ones in the list's order, then the others."""
    faults = {patch.fault: patch.what for patch in read_patches(root)[0]}
    names = dict.fromkeys([*read_list(root), *faults])
    return {name: faults[name] for name in names if name in faults}


def find(lines, wanted):
    """Where `wanted` begins in `lines`, each time that it does."""
    size = len(wanted)
    return [start for start in range(len(lines) - size + 1) if lines[start:start + size] == wanted]


def edits_of(fault, hunk, start):
    """The change of a hunk that begins at line `start`, without the equal lines before and after
    it."""
    for is_context, run in itertools.groupby(hunk.lines, key=lambda line: line[0] == " "):
        run = list(run)
        if is_context:
            start += len(run)
            continue
        removed = [text for mark, text in run if mark == "-"]
        added = [text for mark, text in run if mark == "+"]
        end = start + len(removed)
        while removed and added and removed[0] == added[0]:
            start, removed, added = start + 1, removed[1:], added[1:]
        last = end
        while removed and added and removed[-1] == added[-1]:
            last, removed, added = last - 1, removed[:-1], added[:-1]
        yield Edit(start, last, fault, tuple(added))
        start = end


def place(patch, lines):
    """The patch's edits of a file, each hunk found by all of its lines."""
    edits = []
    for hunk in patch.hunks:
        starts = find(lines, hunk.side("-"))
        if len(starts) != 1:
            where = f"are {len(starts)} times in {patch.path}: more context tells which" if starts else f"are not in {patch.path} any more"
            raise BadPatch(f"{patch.name}: its lines {where}; edit the patch, or run plant.py --refresh")
        edits += edits_of(patch.fault, hunk, starts[0])
    return edits


def place_nearby(patch, lines):
    """The same, by less context where one place alone has it; None where there is no such place."""
    edits = []
    for hunk in patch.hunks:
        for near in [hunk, *(hunk.nearer(*context) for context in NEARER)]:
            old = near.side("-")
            starts = find(lines, old) if any(len(line.strip()) >= TELLING for line in old) else []
            if len(starts) == 1:
                edits += edits_of(patch.fault, near, starts[0])
                break
        else:
            return None
    return edits


def apply(lines, edits):
    """The lines with all edits made. If several faults insert at one place, their lines are in the
    order of the faults' names."""
    edits = sorted(edits, key=lambda edit: (edit.start, edit.end, edit.fault))
    for edit, other in itertools.combinations(edits, 2):
        if edit.meets(other):
            raise BadPatch(f"{edit.fault}.patch and {other.fault}.patch change one line: {lines[max(edit.start, other.start)].strip()}")
    planted, done = [], 0
    for edit in edits:
        planted += [*lines[done:edit.start], *edit.added]
        done = edit.end
    return planted + lines[done:]


def check_rules(patch):
    """What a patch must be, whatever it is applied to."""
    if not CORE_SOURCE.match(patch.path):
        yield f"{patch.name}: it changes {patch.path}; a fault is planted in a .cc of {CORE}, which no test compiles"
    added = PLANTED.findall("\n".join(text for hunk in patch.hunks for text in hunk.side("+")))
    if added != [patch.fault]:
        yield f"{patch.name}: it plants {', '.join(name or 'PAGODA_FAULT' for name in added) or 'nothing'}, not {patch.fault} once"
    for hunk in patch.hunks:
        if hunk.counts != (len(hunk.side("-")), len(hunk.side("+"))):
            yield f"{patch.name}: an '@@' counts its lines wrongly; run plant.py --refresh"


def read_lines(root, patch):
    try:
        return (root / patch.path).read_text().split("\n")
    except FileNotFoundError:
        raise BadPatch(f"{patch.name}: there is no {patch.path}") from None


def plant(root, patches):
    """By path the text of each file with all of its faults, and what is wrong."""
    planted, problems = {}, []
    for path in sorted({patch.path for patch in patches}):
        edits = []
        for patch in patches:
            if patch.path != path:
                continue
            try:
                lines = read_lines(root, patch)
                edits += place(patch, lines)
            except BadPatch as problem:
                problems.append(str(problem))
        if not edits:
            continue
        try:
            planted[path] = "\n".join([INCLUDE, *apply(lines, edits)])
        except BadPatch as problem:
            problems.append(str(problem))
    return planted, problems


def check_list(root, patches):
    """The list in tests/mutation/FAULTS.md is that of the patches, in their words."""
    listed = read_list(root)
    for patch in patches:
        if patch.fault not in listed:
            yield f"{patch.fault}: not in the list of {LIST}"
        elif listed[patch.fault][0] != patch.what:
            yield f"{patch.fault}: {LIST} says that {listed[patch.fault][0]}, {patch.name} that {patch.what}"
    for fault in listed.keys() - {patch.fault for patch in patches}:
        yield f"{fault}: in the list of {LIST}, and {FAULTS}/{fault}.patch is not there or cannot be read"


def check_traces(root):
    """Nothing outside tests/ knows of planted faults."""
    for path in tree.project_files(root, *TRACED):
        trace = path.parts[0] != "tests" and TRACE.search((root / path).read_text())
        if trace:
            yield f"{path}: {trace[0]} is for tests/ alone"


def check(root):
    """Everything that is wrong."""
    patches, problems = read_patches(root)
    for patch in patches:
        problems += check_rules(patch)
    problems += plant(root, patches)[1]
    problems += [*check_list(root, patches), *check_traces(root)]
    return problems


def write(path, text):
    """What is the same stays as old as it is, and what is made of it is not made again."""
    if not path.is_file() or path.read_text() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def write_planted(root, folder):
    """The planted copies and the names; what is wrong, in which case nothing is written."""
    patches, problems = read_patches(root)
    for patch in patches:
        problems += check_rules(patch)
    planted, others = plant(root, patches)
    problems += others
    if not problems:
        for path, text in planted.items():
            write(folder / path, text)
        write(folder / NAMES_FILE, "".join(f"X({patch.fault})\n" for patch in patches))
    return problems


def show(patch, path, lines, edits):
    """The text of a patch that makes these edits."""
    text = f"{patch.what}\n\n--- a/{path}\n+++ b/{path}\n"
    shift = 0
    groups = []
    for edit in sorted(edits, key=lambda edit: edit.start):
        if groups and edit.start - groups[-1][-1].end <= 2 * CONTEXT:
            groups[-1].append(edit)
        else:
            groups.append([edit])
    for group in groups:
        first, last = max(0, group[0].start - CONTEXT), min(len(lines) - 1, group[-1].end + CONTEXT)
        # Take more context until the lines occur once. No end may be an empty line, because
        # editors remove it.
        while len(find(lines, lines[first:last])) > 1 or not lines[first] or not lines[last - 1]:
            if first == 0 and last == len(lines) - 1:
                break
            first, last = max(0, first - 1), min(len(lines) - 1, last + 1)
        section = next((line for line in reversed(lines[:first]) if re.match(r"[A-Za-z_$]", line)), "")
        body, added, done = [], 0, first
        for edit in group:
            body += [f" {line}".rstrip() for line in lines[done:edit.start]]
            body += [f"-{line}" for line in lines[edit.start:edit.end]] + [f"+{line}" for line in edit.added]
            added += len(edit.added) - (edit.end - edit.start)
            done = edit.end
        body += [f" {line}".rstrip() for line in lines[done:last]]
        size = last - first
        text += f"@@ -{first + 1},{size} +{first + 1 + shift},{size + added} @@ {section[:80]}".rstrip() + "\n"
        text += "\n".join(body) + "\n"
        shift += added
    return text


def locate(patch, files):
    """The present place of the patch's lines: the path, the edits, and whether the whole context
    was there."""
    others = [path for path in files if path != patch.path]
    for strict in (True, False):
        for paths in ([patch.path] if patch.path in files else [], others):
            found = []
            for path in paths:
                try:
                    edits = place(patch, files[path]) if strict else place_nearby(patch, files[path])
                except BadPatch:
                    continue
                found += [(path, edits, strict)] if edits else []
            if len(found) == 1:
                return found[0]
    raise BadPatch(f"{patch.name}: no one place in {CORE} has its lines; edit the patch")


def refresh(root):
    """Writes the patches anew; what could not be done, and what a person should look at."""
    patches, problems = read_patches(root)
    notes = []
    files = {str(path): (root / path).read_text().split("\n")
             for path in tree.project_files(root, ".cc") if CORE_SOURCE.match(str(path))}
    for patch in patches:
        try:
            path, edits, strict = locate(patch, files)
        except BadPatch as problem:
            problems.append(str(problem))
            continue
        write(root / FAULTS / patch.name, show(patch, path, files[path], edits))
        if path != patch.path or not strict:
            places = ", ".join(f"{path}:{edit.start + 1}" for edit in edits)
            notes.append(f"{patch.name}: now at {places}{'' if strict else ', by a part of its context'}; look whether that is right")
    return problems, notes


def parse_arguments(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--check", action="store_true")
    what.add_argument("--out", metavar="FOLDER", type=pathlib.Path)
    what.add_argument("--refresh", action="store_true")
    parser.add_argument("--root", type=pathlib.Path, default=ROOT, help=argparse.SUPPRESS)
    return parser.parse_args(argv)


def main(argv=None):
    options = parse_arguments(argv)
    notes = []
    if options.check:
        problems = check(options.root)
    elif options.out:
        problems = write_planted(options.root, options.out)
    else:
        problems, notes = refresh(options.root)
    faults = len(list((options.root / FAULTS).glob("*.patch")))
    for line in [*notes, *problems]:
        print(line)
    if options.check:
        print(f"{faults} faults, {len(problems)} problems")
    # A tree without faults proves nothing.
    return 1 if problems or not faults else 0


if __name__ == "__main__":
    sys.exit(main())
