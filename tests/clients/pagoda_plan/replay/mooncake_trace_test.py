"""pagoda-plan replay on a public trace of an hour of real conversations gives the hit rates that an
independent count gives.

    mooncake_trace_test.py PAGODA_PLAN TRACE    exit status 77 where there is no TRACE

TRACE is FAST25-release/traces/conversation_trace.jsonl of kvcache-ai/Mooncake. It is not part of
the project.
"""

import json
import pathlib
import subprocess
import sys

SKIPPED = 77
REQUESTS = 12031
TOLERANCE = 0.005
LIMIT_SECONDS = 30
# By the tiers. Under LRU several tiers in memory hit the same tokens as one tier with all their
# blocks. A disk that holds every block hits what an unlimited tier hits.
HIT_RATES = {
    "--blocks 0": 0.3664,
    "--blocks 10000": 0.2116,
    "--tiers hbm:gpu:1000,dram:host:9000": 0.2116,
    "--tiers hbm:gpu:1000,dram:host:9000,remote:host:20000": 0.3257,
    "--tiers hbm:gpu:1000,dram:host:9000,nvme:disk:200000": 0.3664,
}


def faults(pagoda_plan, trace, tiers, hit_rate):
    """What is wrong with a replay through these tiers."""
    command = [pagoda_plan, "replay", trace, "--one-by-one", "--policy", "lru", *tiers.split(), "-o", "json"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return [f"it takes longer than {LIMIT_SECONDS} s"]
    if done.returncode != 0:
        return [f"exit status {done.returncode}: {done.stderr}"]
    report = json.loads(done.stdout)
    print(f"{tiers}: {done.stdout}", end="")
    found = []
    if report["requests"] != REQUESTS:
        found.append(f"{report['requests']} requests instead of {REQUESTS}")
    (run,) = report["runs"]
    if abs(run["hit_rate"] - hit_rate) > TOLERANCE:
        found.append(f"hit rate {run['hit_rate']:.4f} instead of {hit_rate} +- {TOLERANCE}")
    by_tier = sum(tier["hit_rate"] for tier in run["tiers"])
    if abs(by_tier - run["hit_rate"]) > 1e-9:
        found.append(f"the tiers hit {by_tier:.4f}, and all together {run['hit_rate']:.4f}")
    return found


def main():
    pagoda_plan, trace = sys.argv[1:]
    if not pathlib.Path(trace).is_file():
        print(f"SKIPPED: there is no trace at {trace}")
        return SKIPPED
    wrong = [f"{tiers}: {fault}" for tiers, hit_rate in HIT_RATES.items()
             for fault in faults(pagoda_plan, trace, tiers, hit_rate)]
    print(*wrong, sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
