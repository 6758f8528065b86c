"""pagodactl replay on a public trace of an hour of real conversations gives the hit rates that an independent count gives.

    mooncake_trace_test.py PAGODACTL TRACE    exit status 77 where there is no TRACE

TRACE is FAST25-release/traces/conversation_trace.jsonl of kvcache-ai/Mooncake. It is not part of the project.
"""

import json
import pathlib
import subprocess
import sys

SKIPPED = 77
REQUESTS = 12031
TOLERANCE = 0.005
LIMIT_SECONDS = 30
HIT_RATES = {0: 0.3664, 10000: 0.2116}  # By blocks of the one tier; 0 is unlimited.


def faults(pagodactl, trace, blocks, hit_rate):
    """What is wrong with a replay at a capacity of `blocks`."""
    command = [pagodactl, "replay", trace, "--blocks", str(blocks), "-o", "json"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return [f"it takes longer than {LIMIT_SECONDS} s"]
    if done.returncode != 0:
        return [f"exit status {done.returncode}: {done.stderr}"]
    report = json.loads(done.stdout)
    print(f"{blocks} blocks: {done.stdout}", end="")
    found = []
    if report["requests"] != REQUESTS:
        found.append(f"{report['requests']} requests instead of {REQUESTS}")
    (run,) = report["runs"]
    if abs(run["hit_rate"] - hit_rate) > TOLERANCE:
        found.append(f"hit rate {run['hit_rate']:.4f} instead of {hit_rate} +- {TOLERANCE}")
    return found


def main():
    pagodactl, trace = sys.argv[1:]
    if not pathlib.Path(trace).is_file():
        print(f"SKIPPED: there is no trace at {trace}")
        return SKIPPED
    wrong = [f"{blocks} blocks: {fault}" for blocks, hit_rate in HIT_RATES.items()
             for fault in faults(pagodactl, trace, blocks, hit_rate)]
    print(*wrong, sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
