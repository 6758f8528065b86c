"""The options in kv_connector_extra_config."""

import dataclasses

from pagoda.connector.options import DaemonOptions

WHERE = "kv_connector_extra_config"


@dataclasses.dataclass(frozen=True)
class Options(DaemonOptions):
    """The keys of kv_connector_extra_config, all optional."""

    kv_cache_layout: str = "LBHNC"
    """The order of axes to request from vLLM. With heads before tokens, engines of any tensor
    parallelism share a cache."""
    stored_dtype: str = "auto"
    """The type in which slots hold KV: "auto" is vLLM's own; "fp8_e4m3" takes a little more than
    half of 16 bits."""

    fetch_from_store: str = "auto"
    """"auto": prefixes that the daemon lacks are fetched from its store, if it has one. "never":
    they are not."""
    export_lease: float = 30.0
    """Seconds for which a prefill engine's daemon keeps a prompt for the decode engine."""

    def __post_init__(self) -> None:
        if self.fetch_from_store not in ("auto", "never"):
            raise ValueError(f"{WHERE}: fetch_from_store is \"auto\" or \"never\", not {self.fetch_from_store!r}")
        if self.export_lease < 0.001:
            raise ValueError(f"{WHERE}: export_lease is at least 0.001 seconds, not {self.export_lease!r}")
        if self.stored_dtype not in ("auto", "fp8_e4m3"):
            raise ValueError(f"{WHERE}: stored_dtype is \"auto\" or \"fp8_e4m3\", not {self.stored_dtype!r}")
