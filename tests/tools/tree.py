"""The project's own files, for the checks that read them."""

import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]


def project_files(root, *suffixes):
    """Paths below `root`, relative to it, that git tracks or would track. Every file if `root` is
    no git checkout."""
    listing = subprocess.run(
        ["git", "-c", f"safe.directory={root}", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root, capture_output=True, text=True, check=False)
    if listing.returncode == 0:
        paths = {pathlib.Path(name) for name in listing.stdout.split("\0") if name}
    else:
        paths = {path.relative_to(root) for path in pathlib.Path(root).rglob("*")}
        paths = {path for path in paths if path.parts[0] not in (".git", "build")}
    return sorted(path for path in paths if (root / path).is_file() and (not suffixes or path.name.endswith(suffixes)))


def report(name, files, violations):
    """Prints the violations, one a line, and returns the exit status. A check without files has
    failed."""
    for violation in violations:
        print(violation)
    print(f"{name}: {len(violations)} violations in {len(files)} files")
    return 1 if violations or not files else 0
