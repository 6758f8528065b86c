"""Caches that clients open: the requests, and the daemon's descriptions of its caches. Nothing here
does I/O."""

import dataclasses
import datetime
import re
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

from pagoda import values
from pagoda._contract import enum_values, v1
from pagoda.values import CacheInfo, Medium

Size: TypeAlias = int | str
"""The size of a tier: bytes, as an integer, as "8GiB" or as "1.5TB"; or a share of the free part of the
daemon's budget, "50%" or "12.5%"."""

# The units of drives are decimal, those of memory binary (see base/byte_size.h).
_UNITS = {"B": 1, "kB": 1000} | {f"{letter}B": 1000 ** power for power, letter in enumerate("KMGTP", 1)} | {
    f"{letter}iB": 1024 ** power for power, letter in enumerate("KMGTP", 1)}
_BYTES = re.compile(rf"(\d+)(?:\.(\d+))? ?({'|'.join(_UNITS)})", re.ASCII)
_SHARE = re.compile(r"(\d{1,3})(?:\.(\d))?%")
# "bfloat16" and the other dtypes of the wire contract.
_DTYPES = enum_values("pagoda.v1.DType", "DTYPE_")
_DTYPE_NAMES = {number: name for name, number in _DTYPES.items()}


class LayerKind(values._OpenEnum):
    """The content of a layer."""

    UNSPECIFIED = 0
    KEY_VALUE = 1
    KEY_ONLY = 2
    """K only, as in multi-head latent attention."""
    OPAQUE = 3
    """A number of bytes per block. Only the client knows their meaning."""


@dataclasses.dataclass(frozen=True)
class CacheIdentity:
    """Decides which KV may be shared: two caches are the same only if every field is equal. Each
    field has at most 256 printable characters without blanks. `model` must not be empty."""

    model: str
    revision: str = ""
    dtype: str = ""
    """How the engine stores KV: "bfloat16", "fp8_e4m3"."""
    layout: str = ""
    """How the engine arranges a page: "NHD"."""
    kernel_packing: str = ""
    """How the engine's kernels pack a page, if `layout` does not determine it."""

    @classmethod
    def take(cls, message: Any) -> "CacheIdentity":
        return cls(message.model, message.revision, message.dtype, message.layout, message.kernel_packing)

    def message(self) -> Any:
        return v1.CacheIdentity(**dataclasses.asdict(self))


@dataclasses.dataclass(frozen=True)
class Layers:
    """`count` equal layers of K and V: Layers(32, num_kv_heads=8, head_dim=128, dtype="bfloat16").
    The groups of a cache are in the model's order."""

    count: int
    num_kv_heads: int = dataclasses.field(kw_only=True)
    head_dim: int = dataclasses.field(kw_only=True)
    dtype: str = dataclasses.field(kw_only=True)
    """"float32", "float16", "bfloat16", "fp8_e4m3", "fp8_e5m2"."""
    window: int = dataclasses.field(default=0, kw_only=True)
    """The attention window in tokens; 0 is full attention."""
    kind: LayerKind = dataclasses.field(default=LayerKind.KEY_VALUE, kw_only=True)
    bytes_per_block: int = dataclasses.field(default=0, kw_only=True)
    """The bytes of one block of one layer; only for opaque layers."""

    @classmethod
    def key_only(cls, count: int, *, head_dim: int, dtype: str, num_kv_heads: int = 1, window: int = 0) -> "Layers":
        """Layers of K only, for multi-head latent attention."""
        return cls(count, num_kv_heads=num_kv_heads, head_dim=head_dim, dtype=dtype, window=window, kind=LayerKind.KEY_ONLY)

    @classmethod
    def opaque(cls, count: int, *, bytes_per_block: int, window: int = 0) -> "Layers":
        """Layers whose bytes only their engine understands: `bytes_per_block` for each block of
        each layer."""
        return cls(count, num_kv_heads=0, head_dim=0, dtype="", window=window, kind=LayerKind.OPAQUE, bytes_per_block=bytes_per_block)

    @classmethod
    def take(cls, message: Any) -> "Layers":
        dtype = _DTYPE_NAMES.get(message.dtype, f"unknown ({message.dtype})") if message.dtype else ""
        return cls(message.count, num_kv_heads=message.num_kv_heads, head_dim=message.head_dim, dtype=dtype, window=message.window_size,
                   kind=LayerKind(message.kind), bytes_per_block=message.bytes_per_block)

    def message(self) -> Any:
        """ValueError: a dtype that the wire contract does not have."""
        if self.dtype and self.dtype not in _DTYPES:
            raise ValueError(f"unknown dtype {self.dtype!r}; the dtypes are {', '.join(_DTYPES)}")
        return v1.LayerGroup(count=self.count, window_size=self.window, kind=int(self.kind), num_kv_heads=self.num_kv_heads,
                             head_dim=self.head_dim, dtype=_DTYPES.get(self.dtype, 0), bytes_per_block=self.bytes_per_block)


@dataclasses.dataclass(frozen=True)
class OpenedCache:
    """A cache that open_cache opened or found."""

    cache: CacheInfo
    """Its name, and its blocks by window and tier."""
    created: bool
    """False: the cache existed with this identity and these layers. It keeps the sizes that it was
    first opened with."""
    epoch: int
    """The incarnation of its state."""

    @classmethod
    def take(cls, message: Any) -> "OpenedCache":
        return cls(CacheInfo.take(message.cache), message.created, message.epoch)


@dataclasses.dataclass(frozen=True)
class CacheTier:
    """A tier of a cache, over all windows. `bytes` is the size of its pools or files. Used blocks
    are blocks that are not free."""

    name: str
    medium: Medium
    bytes: int
    capacity_blocks: int
    used_blocks: int


@dataclasses.dataclass(frozen=True)
class EngineAddresses:
    """Where the daemon's own engine serves. It knows the daemon's callers."""

    grpc: tuple[str, ...]
    """EngineService: "unix:/run/pagoda-engine.sock", "127.0.0.1:7074". Empty while the engine is
    not up."""
    http: str
    """OpenAI's API: "127.0.0.1:7076". "": none."""

    @classmethod
    def take(cls, message: Any) -> "EngineAddresses":
        return cls(tuple(message.grpc), message.http)


@dataclasses.dataclass(frozen=True)
class ServedCache:
    """A cache of a daemon."""

    cache: CacheInfo
    identity: CacheIdentity | None
    """None: a cache from the daemon's configuration."""
    layers: tuple[Layers, ...]
    epoch: int
    tenant: str
    """The tenant that owns the cache; "": no tenant, so every caller may use it."""
    sessions: int
    tiers: tuple[CacheTier, ...]
    opened: datetime.datetime
    unused: float | None
    """Seconds without a session. `ends_in` is the seconds until the cache is dropped if no session
    is opened. None if the cache has a session, or is never dropped by itself."""
    ends_in: float | None
    has_engine: bool
    """Whether the daemon's own engine uses it."""
    engine_addresses: EngineAddresses | None
    """None: has_engine is False."""

    @property
    def name(self) -> str:
        return self.cache.name

    @classmethod
    def take(cls, message: Any) -> "ServedCache":
        return cls(
            CacheInfo.take(message.cache), CacheIdentity.take(message.identity) if message.HasField("identity") else None,
            tuple(Layers.take(group) for group in message.layers), message.epoch, message.tenant, message.sessions,
            tuple(CacheTier(tier.name, Medium(tier.medium), tier.bytes, tier.capacity_blocks, tier.used_blocks) for tier in message.tiers),
            values.utc(message.opened), values.optional_seconds(message, "unused"), values.optional_seconds(message, "ends_in"),
            message.has_engine, EngineAddresses.take(message.engine_addresses) if message.has_engine else None)


@dataclasses.dataclass(frozen=True)
class Budget:
    """The daemon's memory of one kind for caches that clients open, and its free part."""

    medium: Medium
    bytes: int
    free_bytes: int


@dataclasses.dataclass(frozen=True)
class Caches:
    """The daemon's caches that the caller may see, and the memory for more. Iterates over the
    caches."""

    caches: tuple[ServedCache, ...]
    budgets: tuple[Budget, ...]
    """Empty: clients cannot open caches in this daemon."""

    @classmethod
    def take(cls, message: Any) -> "Caches":
        return cls(tuple(ServedCache.take(row) for row in message.caches),
                   tuple(Budget(Medium(row.medium), row.bytes, row.free_bytes) for row in message.budgets))

    def __iter__(self) -> Iterator[ServedCache]:
        return iter(self.caches)

    def __len__(self) -> int:
        return len(self.caches)


def tier_size(medium: Medium, size: Size) -> Any:
    """The TierSize of a size. ValueError: an invalid size."""
    if isinstance(size, str):
        if whole := _BYTES.fullmatch(size):
            digits, unit = whole[2] or "", _UNITS[whole[3]]
            if whole[2] and unit == 1:
                raise ValueError(f"{size!r} is no whole number of bytes")
            size = -(-int(whole[1] + digits) * unit // 10 ** len(digits))  # Rounded up.
        elif share := _SHARE.fullmatch(size):
            permille = int(share[1]) * 10 + int(share[2] or 0)
            if not 1 <= permille <= 1000:
                raise ValueError(f"a share is 0.1% to 100%, not {size}")
            return v1.TierSize(medium=int(medium), free_permille=permille)
        else:
            raise ValueError(f'a size is bytes, 8 << 30 or "8GiB", or a share of the free memory, "50%" or "12.5%"; not {size!r}')
    if size <= 0:
        raise ValueError(f"a tier has at least 1 byte, not {size}")
    return v1.TierSize(medium=int(medium), bytes=size)


def opening(name: str, *, identity: CacheIdentity, layers: Iterable[Layers], tokens_per_block: int, host: Size | None, gpu: Size | None,
            disk: Size | None, eviction_policy: str, tenant: str) -> Any:
    """Builds an OpenCacheRequest. ValueError: an invalid size or dtype."""
    sizes = {Medium.GPU: gpu, Medium.HOST: host, Medium.DISK: disk}
    return v1.OpenCacheRequest(name=name, identity=identity.message(), tokens_per_block=tokens_per_block,
                               layers=[group.message() for group in layers],
                               tiers=[tier_size(medium, size) for medium, size in sizes.items() if size is not None],
                               eviction_policy=eviction_policy, tenant=tenant)
