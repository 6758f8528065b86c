"""Puts two parts into the package when it is built: contract.binpb, the descriptors of
proto/pagoda/v1, and the native extension. The rest is in pyproject.toml.

protoc makes the contract if it is installed, otherwise grpcio-tools, which build_backend/backend.py
then requires. A source distribution already contains it.

The extension needs a C++20 compiler and the headers of this Python. If one is missing, or the build
fails, the package has no extension, and works in plain Python. PAGODA_NATIVE=0 in the environment
leaves the extension out, and with PAGODA_NATIVE=1 its failure is an error.
"""

import os
import pathlib
import re
import runpy
import shutil
import subprocess
import sys
import sysconfig

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # Before setuptools 70.1.
    from wheel.bdist_wheel import bdist_wheel

HERE = pathlib.Path(__file__).resolve().parent
PROTOS = HERE.parents[1] / "proto"
PACKAGE = HERE / "src" / "pagoda"
CONTRACT = "contract.binpb"
VERSION = runpy.run_path(str(PACKAGE / "version.py"))["VERSION"]
# The extension's sources in the repository. A source distribution has them in a folder of its own.
NATIVE = ("clients/python/native", "wire/ring")
# The only headers that they include from other folders.
HEADERS = ("base/file_descriptor.h",)
COPIED = "native_sources"
OLDEST_PYTHON = "cp311"


def native_root():
    """The folder that has the folders of NATIVE and HEADERS; None if there is none."""
    for root in (HERE.parents[1], HERE / COPIED):
        if all((root / name).exists() for name in NATIVE + HEADERS):
            return root
    return None


def native_extension():
    """The extension in a list; an empty list if it cannot be built or is not wanted."""
    wanted, root = os.environ.get("PAGODA_NATIVE"), native_root()
    compiler = os.environ.get("CXX", "g++").split()[0]
    missing = ("it is not wanted" if wanted == "0" else
               "its sources are not here" if root is None else
               "it is for Linux" if sys.platform != "linux" else
               "it has no build without the interpreter's lock" if sysconfig.get_config_var("Py_GIL_DISABLED") else
               f"there is no compiler {compiler}" if shutil.which(compiler) is None else
               "this Python has no headers" if not (pathlib.Path(sysconfig.get_path("include")) / "Python.h").is_file() else "")
    if missing:
        if wanted == "1":
            sys.exit(f"the native extension cannot be built: {missing}")
        print(f"pagoda is built without its native extension: {missing}")
        return []
    sources = [str(path) for folder in NATIVE for path in sorted((root / folder).glob("*.cc"))]
    return [Extension("pagoda._native", sources, include_dirs=[str(root)], language="c++", py_limited_api=True, optional=wanted != "1",
                      extra_compile_args=["-std=c++20", "-O3", "-fvisibility=hidden"],
                      # Its C++ library is its own, so that it runs on older systems.
                      extra_link_args=["-static-libstdc++", "-static-libgcc", "-Wl,--exclude-libs,ALL", "-Wl,--gc-sections", "-s"])]


def make_contract(folder):
    """Writes contract.binpb into `folder`, the folder of the package."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    # In a source distribution, setuptools has copied it with the rest.
    if not (PROTOS / "pagoda").is_dir():
        return
    compiler = [shutil.which("protoc")] if shutil.which("protoc") else [sys.executable, "-m", "grpc_tools.protoc"]
    files = sorted(str(path) for path in (PROTOS / "pagoda" / "v1").glob("*.proto"))
    details = str(PROTOS / "google" / "rpc" / "error_details.proto")
    subprocess.run([*compiler, f"-I{PROTOS}", "--include_imports", f"--descriptor_set_out={folder / CONTRACT}", *files, details],
                   check=True)


class BuildPy(build_py):
    def run(self):
        make_contract(PACKAGE if self.editable_mode else pathlib.Path(self.build_lib) / "pagoda")
        super().run()


class BuildExt(build_ext):
    def get_source_files(self):
        return []  # Sdist copies them: most are outside this folder.


class Sdist(sdist):
    def make_release_tree(self, base_dir, files):
        super().make_release_tree(base_dir, files)
        make_contract(pathlib.Path(base_dir) / "src" / "pagoda")
        if (root := native_root()) is not None:
            for folder in NATIVE:
                shutil.copytree(root / folder, pathlib.Path(base_dir) / COPIED / folder)
            for header in HEADERS:
                copied = pathlib.Path(base_dir) / COPIED / header
                copied.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(root / header, copied)


class BdistWheel(bdist_wheel):
    def finalize_options(self):
        super().finalize_options()
        self.py_limited_api = OLDEST_PYTHON if self.distribution.has_ext_modules() else self.py_limited_api

    def get_tag(self):
        """A wheel with the extension is for each CPython from OLDEST_PYTHON on, and for each Linux
        whose glibc has the newest symbol that the extension needs."""
        built = sorted((pathlib.Path(self.get_finalized_command("build").build_lib) / "pagoda").glob("_native*.so"))
        if not built:
            return "py3", "none", "any"
        python, abi, platform = super().get_tag()
        found = [(int(major), int(minor)) for major, minor in re.findall(rb"\0GLIBC_(\d+)\.(\d+)(?=[.\0])", built[0].read_bytes())]
        if platform.startswith("linux_") and found:
            platform = "manylinux_{}_{}_{}".format(*max(found), platform.removeprefix("linux_"))
        return python, abi, platform


# The extra `server` is the daemon of the same version: deploy/wheel.sh makes its wheel. The licence
# is here because setuptools before 77 refuses its name in pyproject.toml.
setup(license="Apache-2.0", ext_modules=native_extension(),
      cmdclass={"build_py": BuildPy, "build_ext": BuildExt, "sdist": Sdist, "bdist_wheel": BdistWheel},
      extras_require={"torch": ["torch"], "server": [f"pagoda-server=={VERSION}"]})
