"""Compile commands that clang understands, from those of a build by GCC.

    /usr/bin/python3 tests/tools/clang_commands.py BUILD_FOLDER OUTPUT_FOLDER FILE...

Writes OUTPUT_FOLDER/compile_commands.json with one command for each FILE, and prints the files that
the build compiles, one a line. In a unity build CMake lists only the unity files. The command for a
file is then that of the unity file that includes it.
"""

import json
import pathlib
import re
import shlex
import sys

# The compiler reports warnings, and clang does not know all of GCC's. clang-tidy-16 does not read
# GCC's precompiled headers, and each file includes what it needs without them. clang's OpenMP has
# its own header, in a package that the build does not need.
DROPPED = re.compile(r"-W(?!p,).*|-fpch-preprocess|-fno-semantic-interposition|-fopenmp|-fno-pch-timestamp|-fsanitize=.*"
                     r"|-fno-sanitize-recover=.*|-Xcompiler=.*|--param=ggc-.*")
# clang's own precompiled headers, in the fuzz targets.
OF_CLANG = {"-include-pch", "-include", "-fno-pch-timestamp"}
UNITY_FILE = re.compile(r"unity_\d+_cxx\.cxx$")


def clang_arguments(arguments):
    """The compiler's arguments without those that only GCC knows, without precompiled headers, and
    without the output file."""
    kept, rest = [], iter(arguments)
    for argument in rest:
        if argument == "-Xclang":
            if next(rest) in OF_CLANG - {"-fno-pch-timestamp"}:
                next(rest), next(rest)  # -Xclang FILE
        elif argument == "-include":
            name = next(rest)
            if not name.endswith("cmake_pch.hxx"):
                kept += [argument, name]
        elif argument == "-o":
            next(rest)
        elif not DROPPED.fullmatch(argument):
            kept.append(argument)
    return kept


def included_files(unity_file):
    """The source files that a unity file of CMake includes."""
    return re.findall(r'^#include "(.+)"$', pathlib.Path(unity_file).read_text(), re.M)


def commands(entries, files):
    """One entry of a compile_commands.json for each of `files` (absolute paths) that the build
    compiles."""
    sources = {}
    for entry in entries:
        of_unity = UNITY_FILE.search(entry["file"]) and pathlib.Path(entry["file"]).is_file()
        for source in included_files(entry["file"]) if of_unity else [entry["file"]]:
            sources.setdefault(source, entry)
    for file in files:
        if file in sources:
            entry = sources[file]
            arguments = [file if argument == entry["file"] else argument for argument in shlex.split(entry["command"])]
            yield {"directory": entry["directory"], "file": file, "arguments": clang_arguments(arguments)}


def main():
    build, output = map(pathlib.Path, sys.argv[1:3])
    files = [str(pathlib.Path(name).resolve()) for name in sys.argv[3:]]
    chosen = list(commands(json.loads((build / "compile_commands.json").read_text()), files))
    output.mkdir(parents=True, exist_ok=True)
    (output / "compile_commands.json").write_text(json.dumps(chosen, indent=1) + "\n")
    for entry in chosen:
        print(entry["file"])


if __name__ == "__main__":
    main()
