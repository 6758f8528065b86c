"""Checks the Markdown files and the comments.

    /usr/bin/python3 tests/tools/documents.py [ROOT]

* No line of prose is longer than MAX_COLUMNS: in Markdown, in comments and in docstrings. A code
  block, a line that is one link, and a URL can be longer.
* Each relative link in a Markdown file leads to a file or folder of the tree, and its anchor to a
  heading there.
* Each file name in backticks in a Markdown file is that of a file of the tree, from the root, from
  the document's folder, or as the end of a path.
* The words of OLD_WORDS do not come back.
* A README that says how many libraries its folder builds agrees with the folder's CMakeLists.txt.
* A reason of errors that CHANGELOG.md calls removed is not in base/error.cc.
* A command that removes shared memory names the cache, so it leaves other daemons alone.
* The sentences of the Markdown files stay short: see MAX_MEDIAN and MAX_95TH. The check prints both
  numbers.
"""

import ast
import io
import pathlib
import re
import statistics
import sys
import tokenize
import urllib.parse

import tree

MAX_COLUMNS = 100
# Words in a sentence, over all Markdown files: the median and the 95th percentile.
MAX_MEDIAN = 12
MAX_95TH = 25

NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")

# Files with table rows above MAX_COLUMNS, because a test reads each row on one line.
LONG_ROWS = {
    "events/README.md": "tests/tools/test_block_hash.py and others compute the test vectors",
}

SLASHES = (".h", ".cc", ".cu", ".cuh", ".proto")
HASHES = (".sh", ".yaml", ".yml", ".cmake", "CMakeLists.txt")
NAMES_A_FILE = re.compile(r".+\.(h|cc|cu|cuh|py|sh|md|proto|yaml)")
PLACEHOLDER = re.compile(r"[<>*{}$…]|\.\.\.|(?<![A-Za-z])[A-Z][A-Z0-9_]+(?![A-Za-z])(?!\.md)")

# Names in backticks that are not files of the tree, and their meanings.
OTHER_FILES = {
    "cublasLt.h": "a header of CUDA",
    "dist-info/licenses": "a folder of an installed wheel",
    "unix:/path": "an endpoint",
    "venv/bin": "a user's virtual environment",
    "vllm.grpc.engine.VllmEngine/SubscribeKvEvents": "a method of gRPC",
    "vllm/distributed/kv_events.py": "a file of vLLM",
    "vllm/v1/core/kv_cache_utils.py": "a file of vLLM",
}

# Private words of earlier texts, and the words to use instead.
OLD_WORDS = [
    (r"the commons|commons:", "the default tenant"),
    (r"unheld", "evictable"),
    (r"drafts", "draft tokens"),
    (r"the house(?:'s)?", "the project"),
    (r"fore(?:tell|tells|told|telling)", "predict"),
    (r"pok(?:e|es|ed|ing)", "wake"),
    (r"block lives|block_lives|BlockLives|lives_sample", "reuse intervals"),
    (r"room tokens?|room_tokens|ROOM_EXCEEDED|room_timeout|RoomChecks|room_checks", "reserved capacity"),
    (r"waiting room|WaitingRoom|waiting_room", "waiting queue"),
    (r"OpenAiDoor|PoolDoor|the OpenAI door", "the OpenAI API"),
    (r"TenantTurns|tenant_turns", "per-tenant queue"),
    (r"SessionDrains|session_drains|draining_blocks", "deferred release"),
    (r"who goes (?:next|first)", "which block is evicted next"),
]
OLD_WORD = [(re.compile(rf"(?<![\w-])(?:{old})(?!\w)", re.I), new) for old, new in OLD_WORDS]


def markdown_lines(text):
    """(number, line) of each line outside code blocks."""
    fence = None
    for number, line in enumerate(text.split("\n"), start=1):
        mark = re.match(r"\s*(```+|~~~+)", line)
        if mark and fence is None:
            fence = mark[1]
        elif mark and mark[1].startswith(fence):
            fence = None
        elif fence is None:
            yield number, line


def python_lines(text):
    """The same of comments and docstrings that have their lines to themselves."""
    lines, numbers = text.split("\n"), set()
    for node in ast.walk(ast.parse(text)):
        documented = isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
        if documented and ast.get_docstring(node, False):
            numbers.update(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and not token.line[:token.start[1]].strip():
            numbers.add(token.start[0])
    return [(number, lines[number - 1]) for number in sorted(numbers)]


def marked_lines(text, mark):
    """The same of lines that begin with `mark`, but not with "#!"."""
    for number, line in enumerate(text.split("\n"), start=1):
        if line.lstrip().startswith(mark) and not line.startswith("#!"):
            yield number, line


def prose_lines(path, text):
    """(number, line) of the prose in a file; nothing for a file of another kind."""
    if path.suffix == ".md":
        return markdown_lines(text)
    if path.suffix == ".py":
        return python_lines(text)
    if path.name.endswith(SLASHES):
        return marked_lines(text, "//")
    return marked_lines(text, "#") if path.name.endswith(HASHES) else ()


def check_columns(path, text):
    for number, line in prose_lines(path, text):
        if len(re.sub(r"https?://\S+", "", line)) <= MAX_COLUMNS:
            continue
        row = line.startswith("|") and str(path) in LONG_ROWS
        link = path.suffix == ".md" and re.fullmatch(r"\s*(?:[*-] )?\[[^\]]*\]\([^)\s]*\)[.,;]?", line)
        if not row and not link:
            yield f"{path}:{number}: {len(line)} columns; {MAX_COLUMNS} are the most"


def check_words(path, text):
    for number, line in prose_lines(path, text):
        for pattern, new in OLD_WORD:
            for old in pattern.findall(line):
                yield f'{path}:{number}: "{old}"; use "{new}"'


def without_code(line):
    return re.sub(r"`[^`]*`", "", line)


def anchors(text):
    """The anchors of a Markdown file, as GitHub makes them of its headings."""
    found, seen = set(re.findall(r'<a (?:id|name)="([^"]+)"', text)), {}
    for _, line in markdown_lines(text):
        heading = re.match(r"#{1,6} +(.*?)[ #]*$", line)
        if not heading:
            continue
        words = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading[1]).lower()
        slug = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        number = seen.get(slug, 0)
        seen[slug] = number + 1
        found.add(f"{slug}-{number}" if number else slug)
    return found


def known_names(files):
    """Every path of the tree, of files and of folders, without the slash at the end."""
    return {str(path) for path in files} | {str(folder) for path in files for folder in path.parents}


def joined(folder, name):
    """The path `name` from `folder`, relative to the root as both, without "..". None if it leaves
    the tree."""
    parts = list(folder.parts)
    for part in pathlib.PurePosixPath(name).parts:
        if part == "..":
            if not parts:
                return None
            parts.pop()
        else:
            parts.append(part)
    return str(pathlib.Path(*parts))


def check_links(path, text, names, root):
    # A link's text can span two lines, so all lines are searched together.
    body = "\n".join(without_code(line) for _, line in markdown_lines(text))
    for target in re.findall(r"\]\(\s*<?([^)>\s]+)>?[^)]*\)|^\[[^\]]+\]:\s*(\S+)", body, re.M):
        target = target[0] or target[1]
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = urllib.parse.unquote(target).partition("#")
        file = joined(path.parent, name) if name else str(path)
        if file not in names:
            yield f"{path}: the link to {target} leads to nothing"
        elif anchor and file.endswith(".md") and anchor not in anchors((root / file).read_text()):
            yield f"{path}: the link to {target} leads to no heading"


def file_names(line):
    """The words in backticks of a line that look like files of the tree. A test with parameters
    has a slash too, and is none."""
    for name in re.findall(r"(?<!`)`([^`\s]+)`(?!`)", line):
        name = re.sub(r":\d+$", "", name)
        if re.match(r"[\w.]", name) and not re.search(r"://|::|[()=\[\]\"',;|@&?]", name):
            if NAMES_A_FILE.fullmatch(name) or ("/" in name and not re.search(r"Test\.\w", name)):
                yield name


def check_names(path, text, names):
    ends = {name[start:] for name in names for start in [0] + [m.end() for m in re.finditer("/", name)]}
    for number, line in markdown_lines(text):
        for name in file_names(line):
            plain = name.rstrip("/")
            if plain in names or plain in ends or joined(path.parent, plain) in names:
                continue
            if not PLACEHOLDER.search(name) and name not in OTHER_FILES and not name.startswith("build/"):
                yield f"{path}:{number}: there is no {name}"


def check_libraries(path, text, root):
    for number, line in markdown_lines(text):
        said = re.search(r"\b(\w+) libraries\b", line) if "folder builds" in line else None
        lists = root / path.parent / "CMakeLists.txt"
        if said and lists.is_file():
            count = len(re.findall(r"^pagoda_library\(", lists.read_text(), re.M))
            if said[1] != (NUMBERS[count] if count < len(NUMBERS) else str(count)):
                yield f"{path}:{number}: {said[1]} libraries; {path.parent}/CMakeLists.txt has {count}"


def check_shared_memory(path, text):
    for number, line in enumerate(text.splitlines(), start=1):
        if re.search(r"\brm\b.*/dev/shm/(?:pagoda-?)?\*", line):
            yield f"{path}:{number}: removes the memory of every daemon; name the cache: /dev/shm/pagoda-NAME-*"


def check_removed_reasons(path, text, root):
    table = root / "base" / "error.cc"
    if str(path) != "CHANGELOG.md" or not table.is_file():
        return
    there = set(re.findall(r'"([A-Z][A-Z_]+)"', table.read_text()))
    section = ""
    for number, line in markdown_lines(text):
        section = line.strip("# ") if line.startswith("#") else section
        for reason in re.findall(r"`([A-Z][A-Z_]+)`", line) if section == "Removed" else ():
            if reason in there:
                yield f"{path}:{number}: {reason} is removed here, but base/error.cc has it"


def sentences(text):
    """The sentences of a Markdown file's prose, without headings and tables. A name in backticks is
    one word."""
    blocks, block = [], []
    for _, line in markdown_lines(text):
        item = re.match(r"\s*(?:[*+-]|\d+\.) +", line)
        if item or not line.strip() or re.match(r"\s*(?:#|\||<)", line):
            blocks.append(" ".join(block))
            block = []
        if line.strip() and not re.match(r"\s*(?:#|\||<)", line):
            block.append(line[item.end():] if item else line.strip())
    blocks.append(" ".join(block))
    for words in blocks:
        words = re.sub(r"`[^`]*`", "Name", words)
        words = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", words)
        for sentence in re.split(r"(?<=[.!?])[)*\"]*\s+(?=[A-Z0-9*(\"])", words):
            if re.search(r"\w", sentence):
                yield sentence


def lengths_of_sentences(texts):
    """(sentences, the median of their words, the 95th percentile)."""
    counts = sorted(sum(bool(re.search(r"\w", word)) for word in sentence.split())
                    for text in texts for sentence in sentences(text))
    return len(counts), statistics.median(counts or [0]), counts[len(counts) * 95 // 100] if counts else 0


def violations(root, files):
    found, names, pages = [], known_names(files), []
    for path in files:
        if path.suffix != ".md" and not path.name.endswith((".py",) + SLASHES + HASHES):
            continue
        text = (root / path).read_text()
        found.extend(check_columns(path, text))
        found.extend(check_words(path, text))
        found.extend(check_shared_memory(path, text))
        if path.suffix == ".md":
            pages.append(text)
            found.extend(check_links(path, text, names, root))
            found.extend(check_names(path, text, names))
            found.extend(check_libraries(path, text, root))
            found.extend(check_removed_reasons(path, text, root))
    count, median, last = lengths_of_sentences(pages)
    print(f"documents: {count} sentences; of their words the median is {median:g}, the 95th percentile {last}")
    if median > MAX_MEDIAN or last > MAX_95TH:
        found.append(f"the sentences are too long: the median can be {MAX_MEDIAN}, the 95th percentile {MAX_95TH}")
    return found


def main():
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else tree.ROOT
    files = tree.project_files(root)
    return tree.report("documents", files, violations(root, files))


if __name__ == "__main__":
    sys.exit(main())
