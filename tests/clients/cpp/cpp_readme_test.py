"""Compiles the C++ code of clients/cpp/README.md as printed, without making a program.

    /usr/bin/python3 tests/clients/cpp/cpp_readme_test.py COMPILER GENERATED_FOLDER [README]
"""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]


def main():
    compiler, generated = sys.argv[1:3]
    page = pathlib.Path(sys.argv[3]) if len(sys.argv) > 3 else ROOT / "clients" / "cpp" / "README.md"
    blocks = re.findall(r"^```cpp\n(.*?)^```$", page.read_text(), re.M | re.S)
    if len(blocks) < 2:
        sys.exit(f"{page} has {len(blocks)} blocks of C++")
    for number, block in enumerate(blocks, start=1):
        lines = block.splitlines()
        includes = [line for line in lines if line.startswith("#include")]
        body = [line for line in lines if not line.startswith("#include")]
        source = "\n".join([*includes, "void Printed() {", *body, "}", ""])
        done = subprocess.run([compiler, "-std=c++20", "-fsyntax-only", "-x", "c++", f"-I{ROOT}", f"-I{generated}", "-"], input=source,
                              text=True, capture_output=True, timeout=100)
        if done.returncode != 0:
            sys.exit(f"block {number} of {page} does not compile:\n{done.stderr}")
    print(f"{len(blocks)} blocks compile")


if __name__ == "__main__":
    main()
