"""The options that users set for a connector in their engine's configuration."""

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any, Self

from pagoda.caches import Size

# By a field's annotation: the types of its values, and their name in messages.
_KINDS: Mapping[Any, tuple[tuple[type, ...], str]] = {
    float: ((int, float), "seconds"),
    int: ((int,), "a number"),
    bool: ((bool,), "true or false"),
    str: ((str,), "a string"),
    str | None: ((str, type(None)), "a string"),
    Size | None: ((int, str, type(None)), 'bytes, "8GiB" or "50%"'),
}


@dataclasses.dataclass(frozen=True)
class DaemonOptions:
    """The options of every connector. Each is optional."""

    endpoint: str | None = None
    """"unix:/path" or "host:port" on this machine; default: PAGODA_ENDPOINT, else
    127.0.0.1:7070."""
    cache: str = ""
    """The cache's name; default: made from its identity. Engines with the same identity share a
    cache."""
    host: Size | None = None
    """How much of the daemon's host memory a new cache takes: "64GiB", or "50%" of the free part.
    Default: half of the free part."""
    disk: Size | None = None
    """How much of the daemon's disk a new cache takes."""
    timeout: float = 1.0
    """The most seconds that the engine waits for an answer of the daemon."""
    fetch_deadline: float = 1.0
    """The most seconds that a request waits for KV to arrive in memory, from disk or from another
    machine."""
    start_timeout: float = 10.0
    """Seconds to wait for the daemon when the engine starts. The engine also starts without it."""
    token_file: str = ""
    """A file whose first line is the tenant's token; default: PAGODA_TOKEN_FILE."""

    @classmethod
    def take(cls, given: Mapping[str, Any], *, where: str) -> Self:
        """`where`: names the mapping in messages. ValueError: an unknown key, or a value of another
        type."""
        fields = {field.name: field for field in dataclasses.fields(cls)}
        for key, value in given.items():
            if key not in fields:
                raise ValueError(f"{where} has no {key!r}; it has {', '.join(sorted(fields))}")
            types, name = _KINDS[fields[key].type]
            is_other = not isinstance(value, types) or isinstance(value, bool) and bool not in types
            if is_other or isinstance(value, int | float) and value < 0:
                raise ValueError(f"{where}: {key} is {name}, not {value!r}")
        return cls(**given)

    @property
    def token(self) -> str | None:
        """None: the environment's token."""
        return pathlib.Path(self.token_file).read_text(encoding="utf-8").splitlines()[0].strip() if self.token_file else None
