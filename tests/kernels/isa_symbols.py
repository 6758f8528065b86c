"""Checks that the libraries run on every x86-64-v2: code for newer processors is only in objects
that are chosen at run time.

    /usr/bin/python3 tests/kernels/isa_symbols.py LIBRARY.a...

An object whose name contains avx or amx may use those instructions, but must not define a weak
symbol: the linker uses one object's copy of an inline function for all objects, and could choose
that one. All other objects must not use these instructions.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

NEWER = re.compile(r"avx|amx")
# Registers that came with AVX, and instructions that only VEX and EVEX encode.
AVX = re.compile(r"%[yz]mm|\tv(?:mov|add|mul|fmadd|pxor|zeroupper|sub|div|cvt|broadcast|pand|por)")
# Functions with a target attribute that are chosen at run time; their names contain it.
NAMED = re.compile(r"[Aa]vx|AVX")


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def weak_symbols(path):
    """The names of weak functions and objects that the object defines."""
    symbols = (line.split() for line in run("nm", "--defined-only", "-f", "posix", path).splitlines())
    return sorted(name for name, kind, *_ in symbols if kind in ("W", "V", "u"))


def functions_with_avx(path):
    """The functions of the object that contain such an instruction."""
    found, function = set(), ""
    for line in run("objdump", "-d", "-C", "--no-show-raw-insn", path).splitlines():
        if line.endswith(">:"):
            function = line[line.index("<") + 1:-2]
        elif AVX.search(line) and not NAMED.search(function):
            found.add(function)
    return sorted(found)


def main():
    faults, newer, others = [], 0, 0
    for library in map(Path, sys.argv[1:]):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(["ar", "x", library.resolve()], check=True, cwd=folder)
            for path in sorted(Path(folder).glob("*.o")):
                if NEWER.search(path.name):
                    newer += 1
                    faults += [f"{path.name} defines {name} weakly" for name in weak_symbols(path)]
                else:
                    others += 1
                    faults += [f"{path.name} uses AVX in {name}" for name in functions_with_avx(path)]
    for fault in faults:
        print(fault, file=sys.stderr)
    print(f"{newer} objects for newer processors, {others} others, {len(faults)} faults")
    return 1 if faults or not newer or not others else 0


if __name__ == "__main__":
    sys.exit(main())
