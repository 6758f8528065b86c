"""Puts contract.binpb, the descriptors of proto/pagoda/v1, into the package when it is built. The
rest is in pyproject.toml.

protoc makes the file if it is installed, otherwise grpcio-tools, which build_backend/backend.py
then requires. A source distribution already contains it.
"""

import pathlib
import runpy
import shutil
import subprocess
import sys

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

HERE = pathlib.Path(__file__).resolve().parent
PROTOS = HERE.parents[1] / "proto"
PACKAGE = HERE / "src" / "pagoda"
CONTRACT = "contract.binpb"
VERSION = runpy.run_path(str(PACKAGE / "version.py"))["VERSION"]


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


class Sdist(sdist):
    def make_release_tree(self, base_dir, files):
        super().make_release_tree(base_dir, files)
        make_contract(pathlib.Path(base_dir) / "src" / "pagoda")


# The extra `server` is the daemon of the same version: deploy/wheel.sh makes its wheel. The licence
# is here because setuptools before 77 refuses its name in pyproject.toml.
setup(license="Apache-2.0", cmdclass={"build_py": BuildPy, "sdist": Sdist},
      extras_require={"torch": ["torch"], "server": [f"pagoda-server=={VERSION}"]})
