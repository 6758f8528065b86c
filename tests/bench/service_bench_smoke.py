"""Runs the service benchmark at its smallest, and holds that every figure is there and is a number.

    /usr/bin/python3 tests/bench/service_bench_smoke.py SERVICE_BENCH

Says nothing about speed: the rounds are too short for that.
"""

import json
import math
import subprocess
import sys

FIGURES = {
    "session_256_tcp", "session_256_unix", "session_256_retry", "unary_p50", "unary_64", "decode_step_256_p50",
    "decode_step_256_p99", "idle_sessions_20_bytes", "beside_idle_session_256_unix", "beside_idle_unary_p50",
    "beside_idle_decode_step_256_p50"
}
SMALLEST = ["--rounds", "1", "--slice-ms", "20", "--decode-steps", "40", "--idle-sessions", "20"]


def main():
    run = subprocess.run([sys.argv[1], *SMALLEST], stdout=subprocess.PIPE, timeout=100, check=True, text=True)
    lines = [json.loads(line) for line in run.stdout.splitlines()]
    seen = [line["figure"] for line in lines]
    assert sorted(seen) == sorted(FIGURES), f"figures: {seen}"
    for line in lines:
        for key in ("value", "yardstick_value", "ratio"):
            assert math.isfinite(line[key]) and line[key] > 0, f"{key} of {line}"
    print(f"{len(lines)} figures")


if __name__ == "__main__":
    main()
