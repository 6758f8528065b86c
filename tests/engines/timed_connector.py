"""PagodaConnector with a clock around each call of vLLM, for bench_vllm.py. The times go to the
file PAGODA_TIMES, one line of JSON for each step of a side."""

import json
import os
import time

import numpy as np
from pagoda.vllm import PagodaConnector

SCHEDULER = ("get_num_new_matched_tokens", "update_state_after_alloc", "build_connector_meta", "update_connector_output",
             "request_finished_all_groups", "get_kv_connector_stats", "on_new_request")
WORKER = ("handle_preemptions", "start_load_kv", "wait_for_save", "get_transfer_results", "build_connector_worker_meta")


class TimedConnector(PagodaConnector):
    """Its steps end with the last call of vLLM in a step."""

    def __init__(self, vllm_config, role, kv_cache_config):
        super().__init__(vllm_config, role, kv_cache_config)
        self._file = open(f"{os.environ['PAGODA_TIMES']}.{role.name.lower()}", "a", buffering=1)
        self._taken, self._moved = {}, {}
        names, last = (SCHEDULER, "build_connector_meta") if self._scheduler is not None else (WORKER, "build_connector_worker_meta")
        for name in names:
            setattr(self, name, self._timed(name, getattr(self, name), name == last))

    def _timed(self, name, call, is_last):
        def timed(*arguments, **named):
            started = time.perf_counter()
            try:
                return call(*arguments, **named)
            finally:
                self._taken[name] = self._taken.get(name, 0.0) + time.perf_counter() - started
                if name == "get_transfer_results":  # After this call vLLM takes the counts.
                    moved = self._worker.side.moved
                    self._moved = {"loaded": moved.loaded_bytes, "load": moved.load_seconds, "saved": moved.saved_bytes,
                                   "save": moved.save_seconds}
                if is_last:
                    self._file.write(json.dumps({"at": time.time(), "took": self._taken} | self._moved) + "\n")
                    self._taken = {}

        return timed


def memcpy_seconds(size, rounds=5):
    """The best of several copies of `size` bytes between two arrays that are there."""
    source, target = np.ones(size, np.uint8), np.ones(size, np.uint8)
    times = []
    for _ in range(rounds):
        started = time.perf_counter()
        target[:] = source
        times.append(time.perf_counter() - started)
    return min(times)
