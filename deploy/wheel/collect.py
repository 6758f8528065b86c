"""Fills the folder that the wheel of pagoda-server is built from.

    collect.py BIN FOLDER PACKAGE...

BIN holds the built programs. FOLDER is a copy of deploy/wheel; it gets the programs, the libraries
that they load, the licences, and the wheel's platform. Each PACKAGE is a Debian package whose
headers or static libraries are compiled into the programs, so its licence comes along. Needs
binutils, ldd, patchelf and dpkg-query.

glibc stays outside. So does a GPU's driver, which the programs look for when they run. The newest
symbol of glibc that is needed decides the platform: manylinux_2_36 runs with glibc 2.36 and newer.
"""

import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys

PROGRAMS = ("pagodad", "pagodactl", "pagoda-plan", "pagoda-engine")
GLIBC = re.compile(r"(ld-linux-x86-64|lib(c|m|dl|rt|util|pthread|resolv|mvec|anl|nsl))\.so\.\d+")
DOCUMENTATION = pathlib.Path("/usr/share/doc")
COMMON_LICENSES = pathlib.Path("/usr/share/common-licenses")


def output_of(*command):
    """Runs a command and returns its output, in English and without the caller's LD_* variables."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LD_")}
    environment["LC_ALL"] = "C"
    run = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    return run.stdout


def loaded_by(programs):
    """The libraries that the programs load, without glibc's: {name: path}."""
    libraries = {}
    for line in "".join(output_of("ldd", program) for program in programs).splitlines():
        match line.split():
            case [name, "=>", "not", "found"]:
                sys.exit(f"{name} is not on this machine")
            case [name, "=>", path, _] if not GLIBC.fullmatch(name):
                libraries[name] = path
    return libraries


def set_rpath(path, rpath):
    # DT_RPATH goes before LD_LIBRARY_PATH, so the libraries of the wheel win.
    subprocess.run(["patchelf", "--force-rpath", "--set-rpath", rpath, path], check=True)


def copy_programs(bin_dir, folder):
    folder.mkdir()
    for name in PROGRAMS:
        subprocess.run(["strip", "-o", folder / name, bin_dir / name], check=True)
        (folder / name).chmod(0o755)
        set_rpath(folder / name, "$ORIGIN/../lib")
    return [folder / name for name in PROGRAMS]


def copy_libraries(libraries, folder):
    folder.mkdir()
    for name, path in libraries.items():
        shutil.copyfile(path, folder / name)
        (folder / name).chmod(0o755)
        set_rpath(folder / name, "$ORIGIN")
    return [folder / name for name in libraries]


def check(binary, libraries):
    """Ends this program if the binary needs a library that is not in the wheel.

    Returns the oldest glibc that has every symbol that the binary needs: (2, 36).
    """
    header = output_of("readelf", "-hW", binary)
    dynamic = output_of("readelf", "-dW", binary)
    versions = output_of("readelf", "-VW", binary)
    if "X86-64" not in header:
        sys.exit(f"{binary} is not for x86-64")
    for name in re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic):
        if name.startswith(("libcuda.", "libnvidia-")):
            sys.exit(f"{binary} needs {name}, which belongs to a GPU's driver")
        if name not in libraries and not GLIBC.fullmatch(name):
            sys.exit(f"{binary} needs {name}, which is neither glibc's nor in the wheel")
    if "Name: GLIBC_PRIVATE" in versions:
        sys.exit(f"{binary} needs a private symbol of one version of glibc")
    found = re.findall(r"Name: GLIBC_(\d+)\.(\d+)", versions)
    return max(((int(major), int(minor)) for major, minor in found), default=(2, 0))


def owner(path):
    """The Debian package that a library comes from."""
    # /lib is a link to /usr/lib, and dpkg knows a file under only one of the two names.
    real = os.path.realpath(path)
    for known in (path, real, f"/usr{path}", real.removeprefix("/usr")):
        found = subprocess.run(["dpkg-query", "--search", known], capture_output=True, text=True,
                               check=False)
        if found.returncode == 0:
            return found.stdout.partition(":")[0]
    return sys.exit(f"{path} belongs to no Debian package, so its licence is not known")


def copy_licenses(packages, folder):
    """Copies each package's copyright file, and the licences that these files name."""
    named = set()
    for package in packages:
        text = DOCUMENTATION / package / "copyright"
        if not text.is_file():
            sys.exit(f"{text} is missing: this system has no documentation files")
        (folder / package).mkdir(parents=True)
        shutil.copyfile(text, folder / package / "copyright")
        named.update(re.findall(rf"{COMMON_LICENSES}/([\w+-]+(?:\.\d+)*)", text.read_text()))
    (folder / COMMON_LICENSES.name).mkdir()
    for name in named:
        shutil.copyfile(COMMON_LICENSES / name, folder / COMMON_LICENSES.name / name)


def list_libraries(owners, path):
    """Writes which library comes from which version of which package."""
    shown = "${Package} ${Version} ${source:Package} ${source:Version}\n"
    table = output_of("dpkg-query", "--show", f"--showformat={shown}", *owners.values())
    versions = dict(line.split(" ", 1) for line in table.splitlines())
    with path.open("w") as file:
        print("library, Debian package, version, source package, version", file=file)
        for name, package in owners.items():
            print(name, package, versions[package], file=file)


def copy_cuda_license(programs, folder):
    """Copies the licence of CUDA's runtime from the toolkit, if the programs hold the runtime."""
    if not any(b"cudaErrorCudartUnloading" in program.read_bytes() for program in programs):
        return
    compiler = pathlib.Path(shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc")
    toolkit = compiler.resolve().parents[1]
    texts = [*toolkit.glob("EULA.txt"),
             *toolkit.glob("dist-info/nvidia_cuda_runtime-*/licenses/License.txt"),
             *DOCUMENTATION.glob("cuda-cudart-dev-*/copyright")]
    if not texts:
        sys.exit(f"the programs hold CUDA's runtime, but {toolkit} has no licence for it")
    (folder / "cuda-runtime").mkdir()
    shutil.copyfile(texts[0], folder / "cuda-runtime" / "EULA.txt")


def copy_xgrammar_licenses(programs, folder):
    """Copies the licences of XGrammar and of the JSON parser in it, if the programs hold them."""
    if not any(b"RecursionGuard: Maximum recursion depth" in program.read_bytes()
               for program in programs):
        return
    sources = pathlib.Path("build/xgrammar")
    if not (sources / "LICENSE").is_file():
        sys.exit(f"the programs hold XGrammar, but {sources} has no licence for it")
    (folder / "xgrammar").mkdir()
    for name in ("LICENSE", "NOTICE", "picojson.txt"):
        shutil.copyfile(sources / name, folder / "xgrammar" / name)


def main():
    if platform.machine() != "x86_64":
        sys.exit(f"the wheel is for x86_64, and this machine is {platform.machine()}")
    bin_dir, folder = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    package, licenses = folder / "pagoda_server", folder / "bundled"

    libraries = dict(sorted(loaded_by([bin_dir / name for name in PROGRAMS]).items()))
    programs = copy_programs(bin_dir, package / "bin")
    copies = copy_libraries(libraries, package / "lib")
    major, minor = max(check(binary, libraries) for binary in programs + copies)

    owners = {name: owner(path) for name, path in libraries.items()}
    copy_licenses({*owners.values(), *sys.argv[3:]}, licenses)
    list_libraries(owners, licenses / "libraries.txt")
    copy_cuda_license(programs, licenses)
    copy_xgrammar_licenses(programs, licenses)
    tag = f"manylinux_{major}_{minor}_x86_64"
    (folder / "setup.cfg").write_text(f"[bdist_wheel]\nplat_name = {tag}\n")
    print(f"{len(programs)} programs, {len(libraries)} libraries, glibc {major}.{minor}")


if __name__ == "__main__":
    main()
