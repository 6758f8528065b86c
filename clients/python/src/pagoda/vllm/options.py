"""kv_connector_extra_config: what a user may say."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from pagoda.caches import Size


@dataclasses.dataclass(frozen=True)
class Options:
    """The keys of kv_connector_extra_config, all optional."""

    endpoint: str | None = None
    """"unix:/path" or "host:port" on this machine; else PAGODA_ENDPOINT, else 127.0.0.1:7070."""
    cache: str = ""
    """The cache's name; else made of the model and of its identity. Engines with one identity share one cache."""
    host: Size | None = None
    """How much of the daemon's host memory a new cache takes: "64GiB" or "50%" of what is free. Else half of what is free."""
    disk: Size | None = None
    """How much of the daemon's disk a new cache takes."""
    timeout: float = 1.0
    """Seconds that any one question to the daemon may take. A step of the engine never waits longer."""
    fetch_deadline: float = 1.0
    """Seconds that a request may wait until what is cached on disk is in memory."""
    start_timeout: float = 10.0
    """Seconds to wait for the daemon when the engine starts. Without it the engine starts all the same."""
    kv_cache_layout: str = "LBHNC"
    """Which order of axes to ask vLLM for. With heads before tokens engines of any tensor parallelism share a cache."""
    token_file: str = ""
    """A file whose first line is the tenant's token; else PAGODA_TOKEN_FILE."""

    @classmethod
    def take(cls, given: Mapping[str, Any]) -> "Options":
        """ValueError: a key that is none, or a value of another type."""
        known = {field.name: field for field in dataclasses.fields(cls)}
        for key, value in given.items():
            if key not in known:
                raise ValueError(f"kv_connector_extra_config has no {key!r}; it has {', '.join(known)}")
            kinds = {"timeout": (int, float), "fetch_deadline": (int, float), "start_timeout": (int, float), "host": (int, str, type(None)),
                     "disk": (int, str, type(None)), "endpoint": (str, type(None))}.get(key, (str,))
            if not isinstance(value, kinds) or isinstance(value, bool) or isinstance(value, int | float) and value < 0:
                raise ValueError(f"kv_connector_extra_config: {value!r} is no {key}")
        return cls(**given)
