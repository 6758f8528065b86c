"""Runs a fuzz target: its kept inputs, then a few seconds of new ones.

    /usr/bin/python3 tests/fuzz/fuzz_test.py TARGET [--bin FOLDER] [--work FOLDER]
                     [--fault NAME] [--skip WHY]

Every file of corpus/TARGET and regressions/TARGET has to pass. Then libFuzzer goes on from the
corpus for PAGODA_FUZZ_SECONDS (5), each time from another seed. Its findings stay in the work
folder, with the command that reproduces them. With --fault the target runs with a planted fault,
and has to find it: in 5 s on an idle core, in FAULT_SECONDS on a busy one. Exit status 77: the
target was not built.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SKIPPED = 77
GRACE_SECONDS = 60
FAULT_SECONDS = 60
MEMORY_MIB = 1024  # The most memory of a target with its sanitizer. The largest allocation is 256 MiB.
MAX_BYTES = {
    "operations": 1024, "config": 2048, "http": 2048, "open_cache": 1024, "state": 4096, "safetensors": 1024, "gguf": 4096, "model_config": 4096, "adapter": 4096, "text": 2048, "jinja": 2048, "gguf_text": 2048, "resp": 1024, "ring": 1024, "trace": 1024,
}
# Abseil, protobuf and yaml-cpp are Debian's, without a sanitizer. If one of their containers grows
# in their code, our code reports a false overflow.
ENVIRONMENT = {
    "ASAN_OPTIONS": "detect_container_overflow=0:external_symbolizer_path=/usr/bin/addr2line:handle_abort=1:abort_on_error=0",
    "UBSAN_OPTIONS": "print_stacktrace=1",
}
FOUND = re.compile(r"broken invariant: (.*?)(?: \[.*)?$|ERROR: (?:AddressSanitizer|libFuzzer|LeakSanitizer): (.*)$"
                   r"|runtime error: (.*)$", re.MULTILINE)
EXECUTIONS = re.compile(r"^stat::number_of_executed_units:\s*(\d+)", re.MULTILINE)
COVERAGE = re.compile(r"\bcov: (\d+) ft: (\d+)")


def parse(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", choices=MAX_BYTES)
    parser.add_argument("--bin", metavar="FOLDER", type=pathlib.Path, default=ROOT / "build/release/bin")
    parser.add_argument("--work", metavar="FOLDER", type=pathlib.Path, default=ROOT / "build/release/fuzz")
    parser.add_argument("--fault", metavar="NAME", help="plant this fault; the run must find it")
    parser.add_argument("--skip", metavar="WHY", help="print WHY and skip the test")
    return parser.parse_args(argv)


class Run:
    """One target with its folders."""

    def __init__(self, options, seconds):
        self.target = options.target
        self.program = options.bin / f"{options.target}_fuzz"
        self.seconds = seconds
        self.work = options.work / (options.target if options.fault is None else f"{options.target}-{options.fault}")
        self.environment = os.environ | ENVIRONMENT
        if options.fault:
            # One variable names faults of the core, and another one names faults of the targets.
            # Each ignores the other's names.
            in_core = (ROOT / "tests/mutation/faults" / f"{options.fault}.patch").is_file()
            self.environment["PAGODA_FAULT" if in_core else "PAGODA_FUZZ_FAULT"] = options.fault

    def folders(self, *names):
        return [str(HERE / name / self.target) for name in names if (HERE / name / self.target).is_dir()]

    def start(self, *arguments):
        """The exit status and what was printed."""
        shutil.rmtree(self.work, ignore_errors=True)
        (self.work / "corpus").mkdir(parents=True)
        dictionary = HERE / f"{self.target}.dict"
        command = [self.program, f"-artifact_prefix={self.work}/", f"-max_len={MAX_BYTES[self.target]}", "-len_control=0", "-timeout=20",
                   f"-rss_limit_mb={MEMORY_MIB}", "-malloc_limit_mb=256", "-print_final_stats=1",
                   *([f"-dict={dictionary}"] if dictionary.is_file() else []), *arguments]
        with subprocess.Popen(command, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
            try:
                text, _ = process.communicate(timeout=self.seconds + GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                text, _ = process.communicate()
            for left in pathlib.Path("/dev/shm").glob(f"pagoda-fuzz-{process.pid}-*"):
                left.unlink()
        return process.returncode, text.decode(errors="replace")

    def replay(self):
        return self.start("-runs=0", *self.folders("corpus", "regressions"))

    def fuzz(self):
        return self.start(f"-max_total_time={self.seconds}", str(self.work / "corpus"), *self.folders("corpus", "regressions"))


def summary(text):
    """Executions, and the coverage: edges and features."""
    executions = EXECUTIONS.findall(text)
    coverage = COVERAGE.findall(text)
    edges, features = coverage[-1] if coverage else ("?", "?")
    return f"{executions[-1] if executions else '?'} executions, {edges} edges and {features} features covered"


def what(text):
    found = FOUND.search(text)
    return next(group for group in found.groups() if group) if found else "it ended without a message"


def main(argv=None):
    options = parse(argv)
    if options.skip:
        print(f"SKIPPED: {options.skip}")
        return SKIPPED
    run = Run(options, FAULT_SECONDS if options.fault else int(os.environ.get("PAGODA_FUZZ_SECONDS", "5")))
    if not run.program.is_file():
        print(f"{run.program}: not built")
        return 1
    if options.fault:
        # Kept inputs can find the fault. Otherwise new inputs must find it.
        status, text = run.fuzz()
        print(f"{options.fault}: {'found, ' + what(text) if status else 'NOT FOUND'}; {summary(text)}")
        return 0 if status else 1
    for step in (run.replay, run.fuzz):
        status, text = step()
        if status:
            print(text)
            print(f"{run.target}: {what(text)}")
            for path in sorted(run.work.glob("*-*")):
                print(f"again: ASAN_OPTIONS={ENVIRONMENT['ASAN_OPTIONS']} {run.program} {path}")
            return 1
    print(f"{run.target}: {run.seconds} s, {summary(text)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
