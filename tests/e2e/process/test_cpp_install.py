"""The C++ client, installed: a project outside the source builds with it as clients/cpp/README.md
says, and its program uses a daemon."""

import pathlib
import re
import subprocess

from pagoda_daemon import PAGODAD

ROOT = pathlib.Path(__file__).resolve().parents[3]
BUILD = PAGODAD.parents[1]


def blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.M | re.S)


def run(*command):
    done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300)
    assert done.returncode == 0, f"{command}: {done.stdout}"
    return done.stdout


def program(page, endpoint, after):
    """The page's first code as a program."""
    (code, *_) = blocks(page, "cpp")
    assert "unix:/run/pagoda.sock" in code
    code = code.replace("unix:/run/pagoda.sock", endpoint)
    includes = [line for line in code.splitlines() if line.startswith("#include")]
    body = [line for line in code.splitlines() if line not in includes]
    return "\n".join(["#include <iostream>", *includes, "int main() {", *body, after, "}", ""])


def test_a_project_outside_links_the_installed_client(daemon, tmp_path):
    page = ROOT / "clients" / "cpp" / "README.md"
    (project,) = blocks(page, "cmake")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "CMakeLists.txt").write_text(project)
    (outside / "engine.cc").write_text(program(page, f"unix:{daemon.unix_socket}", """
  if (!blocks.ok()) std::cerr << blocks.status() << std::endl;
  std::cout << (blocks.ok() ? blocks->blocks.size() : 0) << std::endl;"""))

    prefix = tmp_path / "prefix"
    run("cmake", "--install", BUILD, "--prefix", prefix)
    # A bare Debian 12 has no make, which CMake would choose.
    run("cmake", "-G", "Ninja", "-S", outside, "-B", tmp_path / "build", f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", tmp_path / "build", "--parallel", "2")

    assert run(tmp_path / "build" / "engine") == "4\n"
    text = "".join(path.read_text() for path in prefix.rglob("*.cmake"))
    assert str(ROOT) not in text, "the package needs the source that it was built from"
