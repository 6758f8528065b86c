"""Checks the machine code of the GPU kernels. Needs no GPU.

    python3 tests/gpu/check_code.py LIBRARY [--cuobjdump PATH] [--table]

The rules, for every kernel of LIBRARY and each architecture:

* No kernel spills registers or uses local memory.
* Kernels on tensor cores have products of matrices (HMMA) and loads of matrices (LDSM). Their K and
  V come only by asynchronous copies of 16 bytes (LDGSTS...128).
* Kernels for Hopper have boxes by TMA (UTMALDG) instead. In prefill and with latents they have
  products of warpgroups (HGMMA) that the compiler has not serialized, and registers that change
  hands (USETMAXREG). They exist for sm_90a only.
* In prefill their softmax runs in parallel to the products of the previous tile: in the loop, no
  exponential and only few instructions follow the wait for these products. Their warpgroups take
  turns (BAR.ARV), and rows leave by stores of 16 bytes.
* Decode over e4m3 converts by F2FP, except on sm_80.
* An exponential is one instruction everywhere, and so is the larger of two numbers.
* The merge loads at least four vectors of 16 bytes before it uses one.
* Kernels of the cache and of block copies whose vectors have 16 bytes use LDG and STG of 128 bits.

--table prints the findings as a table for kernels/BENCHMARKS.md. Exit status 1 if a kernel breaks a
rule, 77 without cuobjdump and nvdisasm. These are the ones that --cuobjdump names, those of CUDA's
toolkit, or those of PyPI's packages nvidia-cuda-cuobjdump and nvidia-cuda-nvdisasm, which
deploy/setup.sh installs into build/cuda-tools.
"""

import argparse
import collections
import os
import pathlib
import re
import shutil
import subprocess
import sys

ENTRY = re.compile(r"^\s*Function : (\S+)$")
ARCHITECTURE = re.compile(r"^arch = (sm_\w+)$")
INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)([^;]*)")
USAGE = re.compile(r"REG:(\d+) STACK:(\d+) SHARED:\d+ LOCAL:(\d+)")
PRODUCTS = ("HGMMA", "WARPGROUP")
# By the number of a lane's sums: the most instructions after the wait for O in the loop of
# HopperPrefillKernel. They rescale O and pack weights.
MOST_BEHIND_WAIT = {64: 90, 128: 120, 256: 185}


class Kernel:
    def __init__(self):
        self.registers = self.stack = self.local = None
        self.instructions = collections.Counter()
        self.program = []  # (name, operands), in order.

    def count(self, *beginnings):
        return sum(n for name, n in self.instructions.items() if name.startswith(beginnings))

    def behind_waits(self):
        """For each wait for all products: (exponentials since the previous products, exponentials
        after the wait, instructions after the wait). After the wait means up to the next products,
        wait or jump back."""
        names = [name for name, _ in self.program]
        waits = []
        for at, (name, operands) in enumerate(self.program):
            if not name.startswith("WARPGROUP.DEPBAR") or not operands.rstrip().endswith("0x0"):
                continue
            before = 0
            for other in reversed(names[:at]):
                if other.startswith(PRODUCTS):
                    break
                before += other == "MUFU.EX2"
            behind = []
            for other in names[at + 1 :]:
                if other.startswith(PRODUCTS) or other == "BRA":
                    break
                behind.append(other)
            waits.append((before, behind.count("MUFU.EX2"), len(behind)))
        return waits

    def loads_before_use(self):
        """The most loads of 128 bits without a multiplication between them."""
        most = run = 0
        for name, _ in self.program:
            if name.startswith("LDG.E.128"):
                run += 1
                most = max(most, run)
            elif name.startswith(("FFMA", "FMUL")):
                run = 0
        return most

    def wide(self, beginning):
        """Those of 128 bits, and those of fewer bits."""
        every = [(name, n) for name, n in self.instructions.items() if name.split(".")[0] == beginning]
        wide = sum(n for name, n in every if name.endswith(".128") or ".128." in name)
        return wide, sum(n for _, n in every) - wide


def find_cuobjdump(named):
    """A cuobjdump with nvdisasm beside it or on PATH; None if there is none. Adds its folder to
    PATH, where it searches nvdisasm."""
    packages = [pathlib.Path(__file__).resolve().parents[2] / "build/cuda-tools", *map(pathlib.Path, sys.path)]
    installed = [str(path) for folder in packages for path in sorted(folder.glob("nvidia/*/bin/cuobjdump"))]
    path = os.environ["PATH"]
    for candidate in (named, "cuobjdump", *installed):
        found = shutil.which(candidate) if candidate else None
        if not found:
            continue
        os.environ["PATH"] = os.path.dirname(found) + os.pathsep + path
        if shutil.which("nvdisasm"):
            return found
    os.environ["PATH"] = path
    return None


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def kernels_of(cuobjdump, library):
    """Kernels by (name, architecture)."""
    found = collections.defaultdict(Kernel)
    architecture = name = None
    for line in run(cuobjdump, "-res-usage", library).splitlines():
        if match := ARCHITECTURE.match(line):
            architecture = match[1]
        elif line.startswith(" Function "):
            name = line.split()[1].rstrip(":")
        elif match := USAGE.search(line):
            kernel = found[name, architecture]
            kernel.registers, kernel.stack, kernel.local = map(int, match.groups())
    for line in run(cuobjdump, "-sass", library).splitlines():
        if match := ARCHITECTURE.match(line):
            architecture = match[1]
        elif match := ENTRY.match(line):
            name = match[1]
        elif match := INSTRUCTION.match(line):
            found[name, architecture].instructions[match[1]] += 1
            found[name, architecture].program.append((match[1], match[2]))
    return found


def short_names(names):
    """DecodeKernel<BFloat16, E4M3, 128, 1> of a mangled entry."""
    names = sorted(names)
    shown = subprocess.run(["c++filt"], input="\n".join(names), check=True, capture_output=True, text=True).stdout.splitlines()
    result = {}
    for name, text in zip(names, shown):
        match = re.search(r"Enter<(.*)>\(", text)
        text = match[1] if match else text
        text = re.sub(r"pagoda::kernels::(cuda::)?(\(anonymous namespace\)::)?", "", text)
        text = re.sub(r"\((bool|unsigned int)\)|(?<=\d)u\b|\s+$", "", text)
        for number, shown_as in (("(Direction)0", "in"), ("(Direction)1", "out"), ("(KvFormat)0", "16 bits"), ("(KvFormat)1", "E4M3"), ("(KvFormat)2", "E5M2")):
            text = text.replace(number, shown_as)
        result[name] = text
    return result


def problems_of(title, kernel, architecture):
    if kernel.registers is None or not kernel.instructions:
        yield "was not found in both listings"
        return
    if kernel.stack or kernel.local:
        yield f"has {kernel.stack} bytes of stack and {kernel.local} of local memory"
    if kernel.count("LDL", "STL"):
        yield f"has {kernel.count('LDL', 'STL')} accesses to local memory"
    # ex2.approx without .ftz compares its argument with -126, and scales before and after.
    scaled = sum(name.startswith("FSETP") and "-126" in operands for name, operands in kernel.program)
    if scaled:
        yield f"has {scaled} exponentials of four instructions"
    if title.startswith(("DecodeKernel", "PrefillKernel", "LatentKernel", "Hopper")) and not kernel.count("FMNMX"):
        yield "has no FMNMX: the larger of two numbers takes a comparison and a choice"
    # sm_89 and later convert two elements by one instruction.
    converts = kernel.count("F2FP.F16.E4M3")
    if re.search(r"Decode\w*<.*E4M3", title) and architecture != "sm_80" and not converts:
        yield "converts e4m3 by steps, without F2FP"
    if title == "PartialMergeKernel" and kernel.loads_before_use() < 4:
        yield f"loads {kernel.loads_before_use()} vectors before it uses one"
    if title.startswith(("DecodeKernel", "PrefillKernel", "LatentKernel")):
        wide, narrow = kernel.wide("LDGSTS")
        if not wide or narrow:
            yield f"has {wide} asynchronous copies of 16 bytes and {narrow} of fewer"
        if not kernel.wide("LDG")[0]:
            yield "does not load its queries by 16 bytes"
        for instruction in ("HMMA", "LDSM"):
            if not kernel.count(instruction):
                yield f"has no {instruction}"
    if title.startswith("Hopper"):
        yield from problems_for_hopper(title, kernel)
    if title.startswith("MoveKernel<BFloat16, BFloat16") or title == "BlockCopyKernel<Vector16>":
        if not kernel.wide("LDG")[0] or not kernel.wide("STG")[0]:
            yield "has no loads and stores of 16 bytes"


def problems_for_hopper(title, kernel):
    prefill = title.startswith("HopperPrefill")
    warpgroups = not title.startswith("HopperDecode")
    for instruction in ("UTMALDG", "SYNCS", "LDG") + (("HGMMA", "USETMAXREG") if warpgroups else ("HMMA", "LDSM")):
        if not kernel.count(instruction):
            yield f"has no {instruction}"
    if kernel.count("LDGSTS"):
        yield "has asynchronous copies that are not boxes"
    # One wait per group of products: S and O, in the first tile, the loop and the last tile. With
    # latents: S and O of two tiles, and of one.
    if kernel.count("WARPGROUP.DEPBAR") > (5 if title.startswith("HopperLatent") else 4):
        yield f"waits {kernel.count('WARPGROUP.DEPBAR')} times for its products"
    if prefill:
        if not kernel.count("BAR.ARV"):
            yield "has warpgroups that take no turns"
        if not kernel.wide("STG")[0]:
            yield "does not store rows by 16 bytes"
        # The loop's wait has exponentials before it: those of S, which run in parallel to O's
        # products.
        dim = int(re.search(r"(\d+)>", title)[1])
        loops = [wait for wait in kernel.behind_waits() if wait[0] > 0]
        if len(loops) != 1:
            yield f"has {len(loops)} waits for products with a softmax before them"
        for _, exponentials, instructions in loops:
            if exponentials:
                yield f"has {exponentials} exponentials behind the wait for its products"
            if instructions > MOST_BEHIND_WAIT[dim]:
                yield f"has {instructions} instructions behind the wait for its products, more than {MOST_BEHIND_WAIT[dim]}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("library")
    parser.add_argument("--cuobjdump")
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    cuobjdump = find_cuobjdump(options.cuobjdump)
    if not cuobjdump or not shutil.which("c++filt"):
        print("skipped: no cuobjdump with nvdisasm, or no c++filt")
        return 77
    kernels = kernels_of(cuobjdump, options.library)
    titles = short_names({name for name, _ in kernels})
    if options.table:
        print("| kernel | architecture | registers | HMMA | HGMMA | LDSM | LDGSTS.128 | UTMALDG | local memory |")
        print("|---|---|---|---|---|---|---|---|---|")
    bad = 0
    for (name, architecture), kernel in sorted(kernels.items(), key=lambda item: (titles[item[0][0]], item[0][1])):
        title = titles[name]
        if options.table and title.startswith(("Decode", "Prefill", "Latent", "Hopper", "Generic", "PartialMerge")):
            counts = [kernel.count("HMMA"), kernel.count("HGMMA"), kernel.count("LDSM"), kernel.wide("LDGSTS")[0], kernel.count("UTMALDG")]
            print(f"| `{title}` | {architecture} | {kernel.registers} | {' | '.join(map(str, counts))} | {kernel.local} |")
        if title.startswith("Hopper") and architecture != "sm_90a":
            bad += 1
            print(f"{title} is there for {architecture}")
        for problem in problems_of(title, kernel, architecture):
            bad += 1
            print(f"{title}, {architecture}: {problem}")
    expected = {"DecodeKernel", "PrefillKernel", "LatentKernel", "GenericKernel", "PartialMergeKernel", "CallMergeKernel", "MoveKernel", "BlockCopyKernel",
                "HopperDecodeKernel", "HopperLatentKernel", "HopperPrefillKernel"}
    missing = expected - {title.split("<")[0] for title in titles.values()}
    if missing:
        bad += 1
        print(f"not in {options.library}: {', '.join(sorted(missing))}")
    print(f"{len(kernels)} kernels, {bad} problems")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
