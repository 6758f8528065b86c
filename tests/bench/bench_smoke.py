"""Runs a benchmark at its smallest, and holds that every figure is there and is a number.

    /usr/bin/python3 tests/bench/bench_smoke.py GROUP PROGRAM

GROUP: service, events, kernels, engine, zmq_bridge, tiers, huge_pages, store, peer, router,
eviction, random_traces or advise. PROGRAM of router: the folder of the Python package.

Says nothing about speed: the rounds are too short for that.
"""

import json
import math
import pathlib
import subprocess
import sys

SERVICE = {
    "session_256_tcp", "session_256_unix", "session_256_retry", "unary_p50", "unary_64", "decode_step_256_p50", "decode_step_256_p99",
    "decode_step_256_packed_p50", "decode_step_256_packed_p99", "ring_round_trip_p50", "decode_step_256_ring_p50", "decode_step_256_ring_p99",
    "decode_step_256_each_ring_p50", "decode_step_256_each_ring_p99", "decode_step_256_paced_ring_p50",
    "decode_step_256_paced_ring_p99", "ring_idle_cpu",
    "quiet_step_p50_beside_256", "quiet_step_p50_sharing_256", "quiet_step_p99_beside_256", "quiet_step_p99_sharing_256",
    "quiet_ring_step_p50_beside_256", "quiet_ring_step_p50_sharing_256", "quiet_ring_step_p99_beside_256", "quiet_ring_step_p99_sharing_256",
    "two_caches", "open_cache_64gib", "idle_sessions_20_bytes",
    "beside_idle_session_256_unix", "beside_idle_unary_p50", "beside_idle_decode_step_256_p50"
}
EVENTS = {
    "log_append_removed", "log_append_stored", "watch_batched", "alloc_p99_with_64_subscribers", "event_latency_p99_64",
    "stalled_subscriber_bytes",
    "stalled_subscriber_alone_bytes", "snapshot_1m", "snapshot_1m_longest_pause", "snapshot_1m_alloc_p99", "snapshot_1m_alloc_longest"
}
KERNELS = {
    f"cpu_{figure}_t{threads}"
    for threads in (1, 2)
    for figure in ("cache_write", "cache_write_slots", "cache_write_fp32", "cache_write_fp8", "cache_write_4m", "gather", "gather_fp8",
                   "block_copy_64k", "block_copy_2m", "block_copy_4m")
} | {
    f"cpu_decode_bf16_{shape}"
    for threads in (1, 2)
    for shape in [f"kv{kv}_b{batch}_t{threads}" for kv in (4096, 16384) for batch in (1, 16)] +
    [f"kv4096_b16_t{threads}_{what}" for what in ("page16", "page64", "fetch_near", "fetch_far")] +
    [f"g{group}_kv4096_b16_t{threads}" for group in (1, 8, 16)]
} | {f"cpu_decode_f16_kv4096_b16_t{threads}"
     for threads in (1, 2)} | {f"cpu_chunk_{queries}_kv4096_b1_t2"
                               for queries in (5, 16, 64)} | {
    f"cpu_decode_{type}_kv16384_b{batch}_t{threads}"
    for type in ("e4m3", "e5m2")
    for batch in (1, 16)
    for threads in (1, 2)
} | {
    f"cpu_decode_latent_h{heads}_kv4096_b16_t{threads}{unit}"
    for heads in (16, 128)
    for threads in (1, 2)
    for unit in ("", "_dots")
} | {"cpu_read_blocks_t1"} | {f"cpu_prefill_bf16_{tokens}" for tokens in (512, 1024, 2048, 4096)} | {"cpu_append_bf16_512_4096"}
ENGINE = {
    "decode_b1", "decode_waits", "decode_serial", "decode_b16_over_b1", "prefill_2048", "ttft_cached_over_uncached", "ttft_host_over_uncached",
    "bookkeeping_share", "sampling_share", "kv_waste_share"
}
TIERS = {f"disk_{figure}" for figure in ("write_128k", "read_128k", "cpu_s_per_gb", "scan", "scan_mb", "write_1m", "read_1m", "cpu_s_per_gb_1m")} | {"free_eviction", "memory_p99_disk_stalled"}
HUGE_PAGES = {f"{figure}_{pages}" for figure in ("random_8k", "page_tables") for pages in ("transparent", "2MiB", "1GiB")}
STORE = {f"redis_{what}_{size}" for what in ("get", "put", "get_cpu", "put_cpu") for size in ("1m", "128k")}
TRACES = ("agents", "chat", "shift")
TRACE_WAYS = ("", "_overlap", "_seed2", "_seed2_overlap")
EVICTION = {
    f"eviction_{trace}{way}_learned_400{host}" for trace in TRACES for way in TRACE_WAYS for host in ("", "_host")
} | {f"eviction_{trace}_learned_400_disk" for trace in TRACES} | {
    f"eviction_shift{way}_hour_learned_400{host}" for way in TRACE_WAYS for host in ("", "_host")
    if way + host != "_overlap"  # Requests waited there.
} | {"eviction_worst_learned", "eviction_worst_hour_learned"} | {f"eviction_{trace}_opt_400{host}" for trace in TRACES for host in ("", "_host")}
RANDOM_TRACES = {f"eviction_random1_overlap_learned_3000{more}" for more in ("", "0", "_host")}
ADVISE = {
    f"advise_error_synthetic_{policy}{tiers}_2000_{factor}x"
    for policy in ("lru", "learned")
    for tiers in ("", "_ladder")
    for factor in ("0.5", "2", "4")
} | {"advise_worst_error", "advise_within_error"}
# By benchmark: its figures, and the arguments of its smallest run.
BENCHMARKS = {
    "service": (SERVICE, ["--rounds", "1", "--slice-ms", "20", "--decode-steps", "40", "--idle-sessions", "20"]),
    "events": (EVENTS, ["--rounds", "1", "--log-events", "20000", "--snapshot-blocks", "20000", "--windows", "1"]),
    "kernels": (KERNELS, ["--smoke"]),
    "engine": (ENGINE, ["--smoke"]),
    "zmq_bridge": ({"zmq_bridge"}, ["--blocks", "20000"]),
    # It runs on threads, because containers often refuse io_uring.
    "huge_pages": (HUGE_PAGES, ["--mib", "64"]),
    "tiers": (TIERS, ["--engine", "threads", "--smoke"]),
    "store": (STORE, ["--smoke"]),
    "peer": ({"peer_fetch_1m", "peer_fetch_128k"}, ["--smoke"]),
    "fetch": ({"fetch_ttft", "memory_p99_store_stalled"}, ["--smoke"]),
    "crossing": ({"crossing_first_token_ms", "crossing_decode_ms"}, ["--smoke"]),
    "eviction": (EVICTION, ["--smoke"]),
    "random_traces": (RANDOM_TRACES, ["--random", "1", "eviction_random1_overlap_learned_3000"]),
    "advise": (ADVISE, ["--smoke"]),
    "router": ({"router_bytes", "router_update", "router_find_4", "router_find_100"}, ["--smoke"]),
}
# Benchmarks that can lack all or some of their figures: these depend on the system's pages.
DEPEND_ON_MACHINE = {"huge_pages"}
# Scripts that run a benchmark's program and the program that it is compared with.
SCRIPTS = {name: pathlib.Path(__file__).parent / "tiers" / f"{name}_bench.py" for name in ("tiers", "store", "peer", "fetch", "crossing", "router")}


def main():
    figures, smallest = BENCHMARKS[sys.argv[1]]
    script = SCRIPTS.get(sys.argv[1])
    program = [sys.executable, "-B", script, sys.argv[2]] if script else [sys.argv[2]]
    run = subprocess.run([*program, *smallest], stdout=subprocess.PIPE, timeout=150, check=True, text=True)
    lines = [json.loads(line) for line in run.stdout.splitlines()]
    seen = [line["figure"] for line in lines]
    missing = set() if sys.argv[1] not in DEPEND_ON_MACHINE else figures - set(seen)
    assert sorted(seen) == sorted(figures - missing), f"figures: {seen}"
    for line in lines:
        for key in ("value", "yardstick_value", "ratio"):
            # The memory of few subscribers can be smaller than the unit in which memory is counted.
            least = 0 if line["unit"] in ("bytes", "KiB") else sys.float_info.min
            assert line[key] is None or (math.isfinite(line[key]) and line[key] >= least), f"{key} of {line}"
    print(f"{len(lines)} figures")


if __name__ == "__main__":
    main()
