"""kv_connector_extra_config: what a user may say."""

import dataclasses

from pagoda.connector.options import DaemonOptions

WHERE = "kv_connector_extra_config"


@dataclasses.dataclass(frozen=True)
class Options(DaemonOptions):
    """The keys of kv_connector_extra_config, all optional."""

    kv_cache_layout: str = "LBHNC"
    """Which order of axes to ask vLLM for. With heads before tokens engines of any tensor parallelism share a cache."""
