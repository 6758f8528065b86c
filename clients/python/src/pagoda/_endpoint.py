"""The daemon's endpoint, credentials and channel options."""

import dataclasses
import os
import pathlib
import re
import sys
from typing import Any

import grpc

# A batch that adds a few sequences of a million tokens fits, and an event that evicts hundreds of
# thousands of blocks.
_MAX_MESSAGE_BYTES = 64 << 20

# Seconds that a call waits for a new connection after its own broke. A running daemon reconnects at
# once.
RECONNECT = 1.0
# How often a batch is sent at most, if its answers are lost.
TRIES = 4

OPTIONS: list[tuple[str, int]] = [
    ("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", _MAX_MESSAGE_BYTES),
    # Otherwise all channels of this process to one endpoint would share one connection and its flow
    # control.
    ("grpc.use_local_subchannel_pool", 1),
    # Ignore the environment's HTTP proxy.
    ("grpc.enable_http_proxy", 0),
    # A stream whose peer disappears silently ends after 30 s. The daemon allows a ping every 10 s.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
    # Find a restarted daemon soon. "min" is how long one connection attempt may take.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 2_000),
    ("grpc.max_reconnect_backoff_ms", 2_000),
]


def is_slow(error: grpc.RpcError) -> bool:
    """Whether a call failed because one attempt to connect got no answer: the daemon may stand
    still, and the call has not reached it. If nobody listens, the error is another one."""
    return error.code() == grpc.StatusCode.UNAVAILABLE and "attempt timed out" in (error.details() or "")


# gRPC resolves the rest of these names itself.
_SCHEMES = ("unix:", "unix-abstract:", "dns:", "ipv4:", "ipv6:", "xds:")
_HOST_AND_PORT = re.compile(r"(?:\[[^\[\]/]+\]|[^:/\[\]]+):(\d{1,5})")


def resolve(endpoint: str | None) -> str:
    """`endpoint`, else the environment's PAGODA_ENDPOINT, else the daemon's default. The form is
    "host:port" or "unix:/path".

    ValueError: the endpoint has another form. gRPC would take it for a name and say only that no
    daemon answers there.
    """
    chosen = endpoint or os.environ.get("PAGODA_ENDPOINT") or "127.0.0.1:7070"
    match = _HOST_AND_PORT.fullmatch(chosen)
    if chosen.startswith(_SCHEMES) or match and int(match[1]) <= 65535:
        return chosen
    raise ValueError(f"the endpoint {chosen!r} is not HOST:PORT: {_mistake(chosen)}")


def _mistake(endpoint: str) -> str:
    """Which form is meant instead of an endpoint that has none."""
    if "://" in endpoint:
        return (f"it begins with {endpoint[:endpoint.index('://') + 3]}; name the daemon's gRPC address "
                "(server.grpc_address, such as 127.0.0.1:7070) or its Unix socket (unix:/path)")
    if "/" in endpoint:
        return f"it is a path; write unix:{endpoint}"
    if endpoint.count(":") > 1 and "]" not in endpoint:
        return "an IPv6 address needs brackets, as in [::1]:7070"
    if ":" not in endpoint[endpoint.rfind("]") + 1:]:
        return f"it has no port, as in {endpoint}:7070"
    return "write it as 127.0.0.1:7070, [::1]:7070, host.example:7070 or unix:/path"


@dataclasses.dataclass(frozen=True)
class Credentials:
    """The caller's credentials, and the CA that verifies the daemon."""

    token: str = ""
    ca_file: str = ""
    certificate_file: str = ""
    key_file: str = ""

    @classmethod
    def choose(cls, token: str | None, ca_file: str | None, certificate_file: str | None, key_file: str | None) -> "Credentials":
        """Uses the given values. Each None comes from the environment instead: PAGODA_TOKEN_FILE,
        PAGODA_CA, PAGODA_CERTIFICATE, PAGODA_KEY."""
        chosen = cls(_token() if token is None else token,
                     *(os.environ.get(name, "") if file is None else str(file)
                       for name, file in (("PAGODA_CA", ca_file), ("PAGODA_CERTIFICATE", certificate_file), ("PAGODA_KEY", key_file))))
        if bool(chosen.certificate_file) != bool(chosen.key_file):
            raise ValueError("a client certificate needs its key, and a key its certificate; one is missing")
        if chosen.certificate_file and not chosen.ca_file:
            raise ValueError("a client certificate is for TLS, which also needs the daemon's CA")
        return chosen

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """The metadata that carries the token with each call."""
        return (("authorization", f"Bearer {self.token}"),) if self.token else ()

    def channel(self, endpoint: str, make: Any) -> Any:
        """Makes a channel of `make`, grpc or grpc.aio. It uses TLS over TCP if `ca_file` is set,
        else plaintext.

        ValueError: the token would go to another machine in plaintext. OSError: a file cannot be
        read.
        """
        if self.ca_file and not is_unix_socket(endpoint):
            return make.secure_channel(endpoint, self._tls(), options=OPTIONS)
        if self.token and not _is_on_this_machine(endpoint):
            raise ValueError(f"the token would go to {endpoint} in plaintext: use TLS by naming the daemon's CA")
        return make.insecure_channel(endpoint, options=OPTIONS)

    def _tls(self) -> grpc.ChannelCredentials:
        ca, key, certificate = (pathlib.Path(file).read_bytes() if file else None
                                for file in (self.ca_file, self.key_file, self.certificate_file))
        return grpc.ssl_channel_credentials(ca, key, certificate)


def _token() -> str:
    """The first line of the environment's PAGODA_TOKEN_FILE that is not empty and does not begin
    with '#'; "" if the variable is not set."""
    file = os.environ.get("PAGODA_TOKEN_FILE")
    if not file:
        return ""
    lines = (line.strip() for line in pathlib.Path(file).read_text(encoding="utf-8").splitlines())
    for line in lines:
        if line and not line.startswith("#"):
            return line
    raise ValueError(f"there is no token in {file}")


def is_unix_socket(endpoint: str) -> bool:
    return endpoint.startswith(("unix:", "unix-abstract:"))


def _is_on_this_machine(endpoint: str) -> bool:
    # The name of a remote host may also begin with "127.".
    in_numbers = not endpoint.strip("0123456789.:")
    return is_unix_socket(endpoint) or in_numbers and endpoint.startswith("127.") or endpoint.startswith(("localhost:", "[::1]:"))


def client_name(name: str | None) -> str:
    """The client's name for operators: `name`, else the program's name."""
    return name or os.path.basename(sys.argv[0] if sys.argv else "") or "python"
