"""Holds the arrows of the project's folders and rooms: each includes only what stands below it.

    /usr/bin/python3 tests/tools/include_arrows.py [ROOT]

ALLOWED is the rule for folders, ROOMS for the sub-folders of some. The folders' README files say
them in words. Exit status 0 where they hold.
"""

import collections
import pathlib
import re
import sys

import tree

CORE = {"base", "kernels", "pools", "events", "manager", "engine"}
# A folder may always include itself. "proto" stands for the headers generated from proto/. A
# sub-folder with a row of its own follows that row alone.
ALLOWED = {
    "base": set(),
    "kernels": {"base"},
    "pools": {"base", "kernels"},
    "events": {"base", "pools"},
    "manager": {"base", "pools", "events"},
    "engine": {"base", "manager", "pools", "kernels"},
    "wire": {"base", "pools", "events", "manager", "proto"},
    # The daemon contains no model: the engine is a process of its own.
    "server": CORE - {"kernels", "engine"} | {"wire", "proto"},
    "clients": CORE | {"wire", "proto"},
    # A program: nothing but its tests includes it.
    "clients/pagodactl": CORE | {"wire", "proto", "clients"},
    # The engine as a program: a client of the daemon, above everything.
    "engine/serve": CORE | {"wire", "proto", "server", "clients"},
    "tests": CORE | {"wire", "proto", "server", "clients", "clients/pagodactl", "engine/serve"},
}

# The rooms of a folder, from bottom to top; "" stands for the folder's own files. A file may
# include files of its own room and of the rooms below it. It can still name a class above by a
# forward declaration.
ROOMS = {
    "kernels": ["execution", "", "reference", "cpu", "cuda"],
    "kernels/cpu": "vectors attention cache".split(),
    "kernels/cuda": "device attention hopper cache".split() + [""],
    "pools": "memory cuda".split() + ["", "gpu_transfers", "file", "store"],
    "manager": "words policy advice accounts tree api restart services tiers window sequences disk".split() + ["", "exchange"],
    "engine": "words json checkpoint structured text model sampling basic_cache request schedule".split() + ["", "serve"],
    "engine/checkpoint": "files gguf config".split() + [""],
    "engine/model": "backend weights kv layers cpu cuda".split() + [""],
    "engine/model/cpu": "loops dots products".split() + [""],
    "engine/model/cuda": "kernels device products step self_test".split() + [""],
    "engine/text": "encoding split vocabulary tokenizer jinja chat".split() + [""],
    "engine/text/jinja": "values python evaluator parser".split() + [""],
    "wire": ["bytes", "", "ring"],
    "server": "log supervision config callers calls engine listener memory directory peers store watch cache batch ring rpc "
              "bridges admin http metrics".split() + [""],
    "engine/serve": "prompt generate openai metrics daemon local doors run".split() + [""],
    "clients/command_line": "terminal".split() + ["", "options", "completion"],
    "clients": "cpp command_line pagoda_plan pagodactl python".split(),
    "clients/pagoda_plan": "size trace replay workload".split() + [""],
    "tests/sim": "words record".split() + ["", "exchange"],
    "clients/pagodactl": "command prefix store events admin generate top".split() + [""],
}

# By the beginning of an include: libraries that only some folders may include. All folders may
# include any other library.
EDGE = {"wire", "server", "clients", "engine/serve", "tests"}
LIBRARIES = {
    "grpc/": EDGE,
    "grpc++/": EDGE,
    "grpcpp/": EDGE,
    "google/protobuf/": EDGE,
    "prometheus/": EDGE,
    "yaml-cpp/": EDGE,
    "zmq": {"server", "tests"},
    "msgpack": {"server", "tests"},
    "CLI/": EDGE,
    "systemd/": EDGE,
    "zlib.h": {"server", "tests"},
    "nlohmann/": EDGE | {"engine"},
    "oneapi/": {"engine", "tests"},
    "unicode/": {"engine", "tests"},
    "xgrammar/": {"engine"},
    "dnnl": {"engine", "tests"},
    "xxhash": {"engine", "events", "manager", "pools", "tests"},
    "liburing": {"pools", "tests"},
    "gtest/": {"tests"},
    "gmock/": {"tests"},
    "benchmark/": {"tests"},
}

INCLUDE = re.compile(r'^\s*(?:/\*.*?\*/\s*)?#\s*(?:include(?:_next)?|import)\s*([<"])([^>"]+)[>"]')

# The most C++ files in one folder.
MAX_FILES = 30


def folder_of(path):
    """The row of ALLOWED for a file; its first folder if there is none."""
    pair = "/".join(path.parts[:2])
    return pair if pair in ALLOWED else path.parts[0]


def target_of(included):
    """The folder that an include leads to; None for a library or the language's own headers."""
    if included.endswith(".pb.h") and not included.startswith("google/protobuf/"):
        return "proto"
    folder = folder_of(pathlib.PurePath(included))
    return folder if "/" in included and folder in ALLOWED else None


def floor_of(hall, path):
    """The floor of a file below `hall`, from 0 at the bottom; None if its room has no place."""
    inner = path.relative_to(hall).parts
    room = inner[0] if len(inner) > 1 else ""
    return ROOMS[hall].index(room) if room in ROOMS[hall] else None


def halls_of(path):
    return [hall for hall in ROOMS if path.is_relative_to(hall)]


def leads_up(path, included):
    """Whether an include leads to a higher room of a folder that both files are in."""
    target = pathlib.PurePath(included)
    for hall in halls_of(path):
        if target.is_relative_to(hall):
            here, there = floor_of(hall, path), floor_of(hall, target)
            if here is not None and there is not None and there > here:
                return True
    return False


def problem_of(root, path, bracket, included):
    """What is wrong with one include of the file at `path`, or None."""
    folder = folder_of(path)
    if bracket == '"' and {".", ".."} & set(included.split("/")):
        return "the project's own headers are included by their path from the root"
    target = target_of(included)
    if target is not None:
        if target != folder and target not in ALLOWED[folder]:
            return f"{folder}/ may not include {target}/"
        if target != "proto" and bracket == "<":
            return "the project's own headers are included with quotes"
        if leads_up(path, included):
            return "includes lead down only: see ROOMS"
        return None
    if bracket == '"' and ("/" not in included or (root / path.parent / included).is_file()):
        return "the project's own headers are included by their path from the root"
    for prefix, folders in LIBRARIES.items():
        if included.startswith(prefix) and not {folder, path.parts[0]} & folders:
            return f"{prefix} is for {', '.join(sorted(folders))} alone"
    return None


def full_rooms(files):
    sizes = collections.Counter(path.parent for path in files)
    return [f"{room}/: {size} files; {MAX_FILES} are the most in a room" for room, size in sizes.items() if size > MAX_FILES]


def violations(root, files):
    found = full_rooms(files)
    for path in files:
        folder = folder_of(path)
        if folder not in ALLOWED:
            found.append(f"{path}: C++ in a folder that has no place in ALLOWED: {folder}/")
            continue
        for hall in halls_of(path):
            if floor_of(hall, path) is None:
                found.append(f"{path}: C++ in a room that has no place in ROOMS: {hall}/")
        for number, line in enumerate((root / path).read_text().splitlines(), start=1):
            match = INCLUDE.match(line)
            problem = match and problem_of(root, path, match[1], match[2])
            if problem:
                found.append(f"{path}:{number}: {line.strip()}: {problem}")
    return found


def main():
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else tree.ROOT
    files = tree.project_files(root, ".h", ".cc", ".cu", ".cuh")
    return tree.report("include arrows", files, violations(root, files))


if __name__ == "__main__":
    sys.exit(main())
