"""The wire contract: message classes and calls, built from the descriptors of proto/pagoda/v1 in
contract.binpb beside this file.

The build makes that file with protoc (see clients/python/DEVELOPING.md). Its types are in a
separate descriptor pool. They therefore clash with no other google.rpc or pagoda.v1 of the process,
and one file serves every version of the protobuf runtime.
"""

import functools
import importlib.resources
import operator
import types
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_FILE = "contract.binpb"


def _load() -> Any:
    file = importlib.resources.files(__package__).joinpath(_FILE)
    if not file.is_file():
        raise ImportError(
            f"{_FILE} is missing in the package pagoda: this is its source folder. Install the package with pip, or use the copy "
            "that the project's build puts into build/<preset>/python")
    pool: Any = descriptor_pool.DescriptorPool()
    for description in descriptor_pb2.FileDescriptorSet.FromString(file.read_bytes()).file:
        pool.AddSerializedFile(description.SerializeToString())
    return pool


def _class_maker(pool: Any) -> Any:
    factory: Any = message_factory
    if hasattr(factory, "GetMessageClass"):
        return factory.GetMessageClass
    return factory.MessageFactory(pool).GetPrototype  # Before protobuf 4.22.


_pool = _load()
_class_of = _class_maker(_pool)


def _messages(*files: str) -> Any:
    """The messages of these .proto files, by their names."""
    descriptors = [_pool.FindFileByName(file).message_types_by_name for file in files]
    return types.SimpleNamespace(**{name: _class_of(found) for named in descriptors for name, found in named.items()})


def enum_values(name: str, prefix: str) -> dict[str, int]:
    """The values of an enum except 0, by their names in lower case without the prefix."""
    return {value.name.removeprefix(prefix).lower(): value.number for value in _pool.FindEnumTypeByName(name).values if value.number}


v1 = _messages("pagoda/v1/types.proto", "pagoda/v1/prefixes.proto", "pagoda/v1/caches.proto", "pagoda/v1/blocks.proto",
               "pagoda/v1/cache.proto", "pagoda/v1/events.proto", "pagoda/v1/admin.proto", "pagoda/v1/mapping.proto")
rpc = _messages("google/rpc/status.proto", "google/rpc/error_details.proto")


def _has_no_futures(*args: Any, **kwargs: Any) -> Any:
    raise TypeError("calls of grpc.aio have no futures")


class Calls:
    """The calls of a channel, of grpc or of grpc.aio. Each carries the caller's metadata."""

    def __init__(self, channel: "grpc.Channel | grpc.aio.Channel", metadata: tuple[tuple[str, str], ...] = ()) -> None:
        def call_of(kind: Any, service: str, method: str, **own: Any) -> Any:
            found = _pool.FindServiceByName(f"pagoda.v1.{service}").methods_by_name[method]
            call = kind(f"/pagoda.v1.{service}/{method}", **({"request_serializer": _class_of(found.input_type).SerializeToString,
                                                              "response_deserializer": _class_of(found.output_type).FromString} | own))
            return functools.partial(call, metadata=metadata) if metadata else call

        def begin(*args: Any, **kwargs: Any) -> Any:
            """Begins a call on a grpc channel, for its future. grpc.aio has tasks instead."""
            return getattr(channel.unary_unary(*args, **kwargs), "future", _has_no_futures)

        self.open_cache = call_of(channel.unary_unary, "CacheService", "OpenCache")
        self.open_session = call_of(channel.unary_unary, "CacheService", "OpenSession")
        self.close_session = call_of(channel.unary_unary, "CacheService", "CloseSession")
        self.keep_alive = call_of(channel.unary_unary, "CacheService", "KeepAlive")
        # An ExecuteRequest, or a BatchRequest.
        self.execute = call_of(channel.unary_unary, "CacheService", "Execute", request_serializer=operator.methodcaller("SerializeToString"))
        self.fetch_prefix = call_of(channel.unary_unary, "CacheService", "FetchPrefix")
        self.begin_fetch_prefix = call_of(begin, "CacheService", "FetchPrefix")
        self.export_prefix = call_of(channel.unary_unary, "CacheService", "ExportPrefix")
        self.materialize = call_of(channel.unary_stream, "CacheService", "Materialize")
        self.watch = call_of(channel.unary_stream, "EventService", "Watch")
        self.get_status = call_of(channel.unary_unary, "AdminService", "GetStatus")
        self.list_caches = call_of(channel.unary_unary, "AdminService", "ListCaches")
        self.drop_cache = call_of(channel.unary_unary, "AdminService", "DropCache")
        self.reset_prefix_cache = call_of(channel.unary_unary, "AdminService", "ResetPrefixCache")
