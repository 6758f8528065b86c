"""Where a daemon is, and how this package connects to it."""

import os
import sys

# A batch that adds a few sequences of a million tokens fits, and an event that evicts hundreds of thousands of blocks.
_MAX_MESSAGE_BYTES = 64 << 20

# Seconds that a call whose connection broke waits for another one. A daemon that lives is there at once.
RECONNECT = 1.0
# How often a batch is sent at most, where its answers are lost.
TRIES = 4

OPTIONS: list[tuple[str, int]] = [
    ("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", _MAX_MESSAGE_BYTES),
    # Channels of one process to one endpoint would otherwise share a connection, and its flow control.
    ("grpc.use_local_subchannel_pool", 1),
    # A daemon is on this machine: a proxy that the environment names is not the way to it.
    ("grpc.enable_http_proxy", 0),
    # A stream whose other side is silently gone ends after 30 s. The daemon allows a ping every 10 s.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
    # A daemon that is started again is found soon. "min" is how long one try may take.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 2_000),
    ("grpc.max_reconnect_backoff_ms", 2_000),
]


def resolve(endpoint: str | None) -> str:
    """`endpoint`, else the environment's PAGODA_ENDPOINT, else the daemon's default: "host:port" or "unix:/path"."""
    return endpoint or os.environ.get("PAGODA_ENDPOINT") or "127.0.0.1:7070"


def client_name(name: str | None) -> str:
    """What operators read: `name`, else the program's."""
    return name or os.path.basename(sys.argv[0] if sys.argv else "") or "python"
