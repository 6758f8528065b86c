"""The connector's figures in vLLM's log and on its Prometheus page."""

from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.metrics import KVConnectorPromMetrics, KVConnectorStats, PromMetric, PromMetricT

# The count's name, the metric's name, and its help.
COUNTERS = (
    ("queried_tokens", "vllm:pagoda_queried_tokens", "Prompt tokens that the connector asked Pagoda for."),
    ("hit_tokens", "vllm:pagoda_hit_tokens", "Prompt tokens whose KV came from Pagoda."),
    ("disk_hit_tokens", "vllm:pagoda_disk_hit_tokens", "Prompt tokens whose KV came from Pagoda's disk; hit_tokens includes them."),
    ("remote_hit_tokens", "vllm:pagoda_remote_hit_tokens",
     "Prompt tokens whose KV came from other machines; hit_tokens includes them."),
    ("loaded_bytes", "vllm:pagoda_loaded_bytes", "Bytes copied from Pagoda's pool to vLLM's KV memory, of all ranks."),
    ("saved_bytes", "vllm:pagoda_saved_bytes", "Bytes copied from vLLM's KV memory to Pagoda's pool, of all ranks."),
    ("load_seconds", "vllm:pagoda_load_seconds", "Time that workers spent on loads; on a GPU the time to begin them."),
    ("save_seconds", "vllm:pagoda_save_seconds", "Time that workers spent on saves; on a GPU the time to begin them."),
    ("failed_loads", "vllm:pagoda_failed_loads", "Requests that were computed because a load did not happen."),
    ("unsaved_requests", "vllm:pagoda_unsaved_requests", "Requests that were not saved completely, because Pagoda's tier or the tenant's quota is full."),
    ("lost_sessions", "vllm:pagoda_lost_sessions", "How often the session with the daemon was lost."),
)


class PagodaStats(KVConnectorStats):
    """Sums over the ranks and over time."""

    def reset(self) -> None:
        self.data = {}

    def aggregate(self, other: KVConnectorStats) -> KVConnectorStats:
        for name, value in other.data.items():
            self.data[name] = self.data.get(name, 0) + value
        return self

    def reduce(self) -> dict[str, int | float]:
        return {name: round(value, 4) if isinstance(value, float) else value for name, value in self.data.items()}

    def is_empty(self) -> bool:
        return not any(self.data.values())


class PagodaPromMetrics(KVConnectorPromMetrics):
    """Counters, one set for each engine of the process."""

    def __init__(self, vllm_config: Any, metric_types: dict[type[PromMetric], type[PromMetricT]], labelnames: list[str],
                 per_engine_labelvalues: dict[int, list[object]]) -> None:
        super().__init__(vllm_config, metric_types, labelnames, per_engine_labelvalues)
        self._counters: dict[str, dict[int, Any]] = {}
        for name, metric, told in COUNTERS:
            counter = self._counter_cls(name=metric, documentation=told, labelnames=labelnames)
            self._counters[name] = {engine: counter.labels(*values) for engine, values in per_engine_labelvalues.items()}

    def observe(self, transfer_stats_data: dict[str, Any], engine_idx: int = 0) -> None:
        for name, value in transfer_stats_data.items():
            if name in self._counters and value:
                self._counters[name][engine_idx].inc(value)
