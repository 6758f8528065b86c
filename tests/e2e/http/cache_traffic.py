"""Traffic that changes every number of a daemon: tenants cache, reuse, evict, offload, get
refusals, come and go, and watch."""

import contextlib
import random
import threading

import grpc
from free_ports import free_port
from pagoda_client import Client, OperationError, authorized
from pagoda.v1 import admin_pb2, events_pb2, events_pb2_grpc, prefixes_pb2

OPERATOR = "token-of-the-operator-0123456789"
TENANTS = {"red": "token-of-red-0123456789abcdef", "blue": "token-of-blue-0123456789abcde"}
BLUES_QUOTA = 40
# The tiers of SECTIONS with a disk tier below. Its path is relative to the daemon's folder.
TIERS_WITH_DISK = [{"name": "primary", "medium": "host", "size": 96}, {"name": "secondary", "size": 48},
                   {"name": "disk", "medium": "disk", "size": 200, "path": "disk"}]
# The configuration of a daemon for this traffic. A block has 4 tokens.
SECTIONS = {
    "cache": {"primary": 96, "secondary": 48},
    "metrics": {"tenants": True, "block_sample": 1},
    "operator_token": OPERATOR,
    "secrets": {f"{name}.tokens": token for name, token in TENANTS.items()} | {"daemons.tokens": "token-of-the-daemons"},
    "tenants": [{"name": "red", "tokens_file": "red.tokens"},
                {"name": "blue", "tokens_file": "blue.tokens", "primary_blocks": BLUES_QUOTA}],
    # The log soon drops the events that `watch_and_stall` does not read.
    "events": {"max_events": 3000, "progress_interval": "200ms", "flush_interval": "1ms"},
}


def other_machines(tokens=""):
    """Sections for a daemon with a store, which is away, and another daemon, which is itself.
    `tokens`: a file with the token that daemons show each other."""
    return {"store": {"servers": ["127.0.0.1:1"]},
            "peers": {"address": f"127.0.0.1:{free_port()}", "sources": ["127.0.0.1:*"], "tokens_file": tokens, "source_token_file": tokens}}


class Traffic:
    """Runs on its own threads inside a `with` block. The end of the block raises the error of a
    thread."""

    def __init__(self, daemon):
        self.daemon = daemon
        self.stop = threading.Event()
        self.errors = []
        self.rounds = 0
        jobs = [(self.serve, "red"), (self.serve, "blue"), (self.operate,), (self.watch,), (self.watch_and_stall,)]
        if "peers" in daemon.config:
            jobs.append((self.fetch, daemon.config["peers"]["address"]))
        self.threads = [threading.Thread(target=self.guard, args=job, daemon=True) for job in jobs]

    def guard(self, work, *arguments):
        try:
            work(*arguments)
        except Exception as error:  # pylint: disable=broad-except
            if not self.stop.is_set():
                self.errors.append(error)

    def channel(self, token):
        return authorized(self.daemon.connect(), token)

    def serve(self, tenant):
        """Prompts of which the recent ones come again, in sessions of a hundred."""
        tokens = random.Random(tenant)
        channel = self.channel(TENANTS[tenant])
        prompts = []
        while not self.stop.is_set():
            with Client(channel, name=tenant) as client:
                for number in range(1, 101):
                    if self.stop.is_set():
                        break
                    fresh = not prompts or tokens.random() < 0.5
                    if fresh:
                        prompts = [*prompts[-8:], [tokens.randrange(1 << 30) for _ in range(24)]]
                    with contextlib.suppress(OperationError):  # The other tenant holds all blocks.
                        client.cache(number, tokens.choice(prompts))
                with contextlib.suppress(OperationError):
                    client.allocate(BLUES_QUOTA + 1 if tenant == "blue" else 96)
            self.rounds += 1

    def fetch(self, address):
        """Asks the store, which is away, and another daemon for prompts that nobody has."""
        with Client(self.channel(TENANTS["red"]), name="fetch") as client:
            for number in range(1 << 20):
                request = prefixes_pb2.FetchPrefixRequest(session=client.session, tokens=[1 << 31 | number] * 8)
                if number % 2:
                    request.source.address = address
                client.stub.FetchPrefix(request, timeout=20)
                if self.stop.wait(0.2):
                    return

    def operate(self):
        while not self.stop.wait(0.2):
            self.daemon.status()
            self.daemon.admin.ListTenants(admin_pb2.ListTenantsRequest(), timeout=20)

    def subscribe(self):
        return events_pb2_grpc.EventServiceStub(self.channel(OPERATOR)).Watch(events_pb2.WatchRequest())

    def watch(self):
        for number, _ in enumerate(self.subscribe()):
            if self.stop.is_set():
                return
            if number % 200 == 199:
                return self.watch()  # Ends this stream and opens another.

    def watch_and_stall(self):
        stream = self.subscribe()
        next(stream)
        self.stop.wait()
        stream.cancel()

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *error):
        self.stop.set()
        for thread in self.threads:
            thread.join(30)
        with contextlib.suppress(grpc.RpcError):
            Client.close_all()
        if error[0] is None and self.errors:
            raise self.errors[0]
