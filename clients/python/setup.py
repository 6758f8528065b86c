"""Puts contract.binpb, the descriptors of proto/pagoda/v1, into the package as it is built; the rest is in pyproject.toml.

It is made with protoc where there is one, else with grpcio-tools, which build_backend/backend.py then asks for. A source distribution
has it made already.
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
    """Writes contract.binpb into `folder`, which is the package's."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    if not (PROTOS / "pagoda").is_dir():  # A source distribution: setuptools has copied it with the rest.
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


# The extra `server` is the daemon of the same version: deploy/wheel.sh makes its wheel.
setup(cmdclass={"build_py": BuildPy, "sdist": Sdist},
      extras_require={"torch": ["torch"], "server": [f"pagoda-server=={VERSION}"]})
