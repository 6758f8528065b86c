"""Holds the few rules of style that a program can see.

    /usr/bin/python3 tests/tools/style.py [ROOT]
    /usr/bin/python3 tests/tools/style.py --update-list [ROOT]

* No reminders to do something later: what is missing is an issue, not a comment.
* No source file above MAX_LINES lines.
* Every folder at the top has a README.md.
* A comment has a subject: none begins with "Of", "As" or "Likewise", nor does a docstring.
* A header's guard is its path: PAGODA_POOLS_TYPES_H_ in pools/types.h.
* A source file ends with one newline and holds no tabs and no trailing blanks.
* The product starts threads in base/thread.cc alone, which returns a Status. Tests may use others.
* Options are checked by clients/command_line/number_check.h, whose errors are short.
* Text of other processes reaches a terminal or a log through one place: ForTerminal in the command
  line, Log in the daemon. So the command line has no stdio and no control sequences elsewhere, and
  the daemon writes nothing else to its standard streams but in main.cc.
* A message of the product writes a count and its noun by Counted of base/counted.h, or by
  FormatCounted of the command line, so that it says "1 session". A constant needs no singular, and
  neither does a number that the message refuses, if 1 is allowed: "; at most", "1 to".
* A class has at most 60 methods, a function at most 70 lines. tests/tools/too_large.txt lists the
  classes and functions that are larger, with their sizes. An entry that no longer fits is a
  violation too (size_caps.py). --update-list writes the list anew, for files that moved, unless a
  size grew.
"""

import pathlib
import re
import sys

import size_caps
import tree

MAX_LINES = 600
SOURCES = (".h", ".cc", ".cu", ".cuh", ".py", ".sh", ".proto", ".cmake", "CMakeLists.txt", ".md", ".yaml")
# CMake's own modules: one file that explains itself.
NO_README = {"cmake"}
# Each throws or reports by itself when the system refuses a thread. Names of std::thread's members,
# such as hardware_concurrency, start none.
CODE = (".h", ".cc", ".cu", ".cuh")
STARTS_A_THREAD = re.compile(r"\bstd::(?:j?thread|async)\b(?!::)|\b(?:pthread_create|thrd_create)\b")
THREADS_START = pathlib.Path("base/thread.cc")
# The errors of these print a bound with 309 digits.
LONG_BOUND = re.compile(r"\bCLI::(?:Positive|NonNegative)Number\b")
STDIO = re.compile(r"\b(?:F?PrintF|v?f?printf|f?puts|putchar|fwrite)\(")
STREAMS = re.compile(r"\bstd::(?:cout|cerr|clog)\b|\bSTD(?:OUT|ERR)_FILENO\b")
ESCAPES = re.compile(r"\\x1[bB]|\\033|\\e\[")
COMMAND_LINE = (("clients", "command_line"), ("clients", "pagoda_plan"), ("clients", "pagodactl"), ("engine", "serve"))
MAY_ESCAPE = {"printable_output.cc", "full_screen.cc"}
DAEMON_STREAMS = {pathlib.Path("server/log/log.cc"), pathlib.Path("server/main.cc")}
# A value, and a text behind it that begins with a plural.
COUNT = re.compile(r"([\w.\[\]()*>-]+),\s*\"( (?:blocks|caches|calls|connections|daemons|entries|events|pins|requests|segments|sequences|"
                   r"sessions|slots|streams|tenants|tiers|tokens|windows|writers)\b[^\"]*)\"")
# The message says that the number is out of bounds, and that 1 is within them.
OUT_OF_BOUNDS = re.compile(r"; at most|\b1 to $")
CONSTANT = re.compile(r"\bk[A-Z]\w*$")
# COMMENT finds where a comment or docstring begins, NO_SUBJECT one that begins with such a word.
SLASHES, HASHES = r"//+", r'(?:(?<!\S)#+|^\s*"""(?=\w))'
COMMENT = {mark: re.compile(mark) for mark in (SLASHES, HASHES)}
NO_SUBJECT = {mark: re.compile(rf"{mark} *(?:Of|As|Likewise)\b") for mark in (SLASHES, HASHES)}
# Written so that this file does not find itself.
REMINDER = re.compile(r"\b(" + "|".join(["TO" + "DO", "FIX" + "ME", "XX" + "X"]) + r")\b")


def guard_of(path):
    return "PAGODA_" + re.sub(r"[^A-Z0-9]", "_", str(path).upper()) + "_"


def check_header(path, text):
    guard = guard_of(path)
    opening = f"#ifndef {guard}\n#define {guard}\n"
    if opening not in text or not text.endswith(f"#endif  // {guard}\n"):
        yield f"{path}: the include guard is not {guard}"


def check_subjects(path, lines):
    mark = SLASHES if path.suffix in (*CODE, ".proto") else HASHES
    above = None  # The column of the comment in the line above, which goes on in the same column.
    for number, line in enumerate(lines, start=1):
        found = NO_SUBJECT[mark].search(line)
        if found and (found.start() != above or line[:above].strip()):
            yield f"{path}:{number}: a comment without a subject: {line.strip()}"
        comment = COMMENT[mark].search(line)
        above = comment.start() if comment and line[comment.end():].strip() else None


def check_text(path, text):
    lines = text.split("\n")
    if path.suffix != ".md":
        yield from check_subjects(path, lines)
    if len(lines) - 1 > MAX_LINES:
        yield f"{path}: {len(lines) - 1} lines; split it, {MAX_LINES} are the most"
    for number, line in enumerate(lines, start=1):
        if REMINDER.search(line):
            yield f"{path}:{number}: a reminder for later: {line.strip()}"
        if line != line.rstrip() or "\t" in line:
            yield f"{path}:{number}: a tab or blanks at the end of the line"
    if not text.endswith("\n") or text.endswith("\n\n"):
        yield f"{path}: does not end with one newline"
    if path.suffix in CODE and path.parts[0] != "tests" and path != THREADS_START:
        for number, line in enumerate(lines, start=1):
            if STARTS_A_THREAD.search(line.split("//")[0]):
                yield f"{path}:{number}: starts a thread; use Thread of base/thread.h: {line.strip()}"
            if LONG_BOUND.search(line.split("//")[0]):
                yield f"{path}:{number}: use AboveZero or NotNegative of number_check.h: {line.strip()}"
    if path.suffix in CODE:
        yield from check_output(path, text)
    if path.suffix in CODE and path.parts[0] != "tests":
        for match in COUNT.finditer(text):
            value, words = match.groups()
            if not CONSTANT.search(value) and not OUT_OF_BOUNDS.search(words):
                yield f"{path}:{text.count(chr(10), 0, match.start()) + 1}: a count of one has no plural; use Counted of base/counted.h: {words}"
    if path.suffix in (".h", ".cuh"):
        yield from check_header(path, text)


def check_output(path, text):
    command_line, daemon = path.parts[:2] in COMMAND_LINE, path.parts[0] == "server"
    for number, line in enumerate(text.split("\n"), start=1):
        code = line.split("//")[0]
        if command_line and (STDIO.search(code) or (ESCAPES.search(code) and path.name not in MAY_ESCAPE)):
            yield f"{path}:{number}: passes by ForTerminal; use printable_output.h: {line.strip()}"
        if daemon and path not in DAEMON_STREAMS and (STDIO.search(code) or STREAMS.search(code)):
            yield f"{path}:{number}: passes by Log: {line.strip()}"


def violations(root, files):
    found = []
    folders = {path.parts[0] for path in files if len(path.parts) > 1}
    for folder in sorted(folders):
        if not folder.startswith(".") and folder not in NO_README and not (root / folder / "README.md").is_file():
            found.append(f"{folder}/: has no README.md")
    for path in files:
        if path.name.endswith(SOURCES):
            found.extend(check_text(path, (root / path).read_text()))
    found.extend(size_caps.violations(root, files))
    return found


def main():
    arguments = sys.argv[1:]
    updates_list = arguments[:1] == ["--update-list"]
    roots = arguments[1:] if updates_list else arguments
    root = pathlib.Path(roots[0]) if roots else tree.ROOT
    files = tree.project_files(root)
    if updates_list:
        larger = size_caps.update(root, files)
        print("".join(f"{line}\n" for line in larger), end="")
        return 1 if larger else 0
    return tree.report("style", files, violations(root, files))


if __name__ == "__main__":
    sys.exit(main())
