"""A tenant that does as much as it is allowed to, as fast as it can, for test_battery_tenants.py.
forked_clients.py starts it.

    abusive_client.py ... ADDRESS TOKEN SESSIONS BATCH NAME PROMPT...

NAME and the tokens of PROMPT are another tenant's. SIGUSR1 ends the abuse.
"""

import collections
import itertools
import os
import signal
import threading

import grpc
from forked_clients import run_clients
from pagoda_client import Client, OperationError, authorized, call_status, connect
from pagoda.v1 import admin_pb2, admin_pb2_grpc, cache_pb2, events_pb2, events_pb2_grpc

OUTSTANDING = 32
LEASE_MS = 600_000  # Longer than the test, however busy the machine is.
PROMPT_TOKENS = 30
DIFFERENT_REQUESTS = 16
ROUNDS_BETWEEN_PRYINGS = 10
CALLS_BETWEEN_LOOKS = 20


def make_requests(session, operations, token, prompt):
    """Serialized batches that need more blocks than the cache has. Each sequence is opened,
    committed and freed, so that the tenant's cached blocks fill its quota. Tokens count from
    `token`. Single operations look for `prompt`."""
    if operations == 1:
        batches = [[cache_pb2.Operation(match_prefix=cache_pb2.MatchPrefixRequest(tokens=prompt))]]
    else:
        batches = []
        for _ in range(DIFFERENT_REQUESTS):
            batches.append([])
            for sequence in range(1, operations // 3 + 1):
                batches[-1] += [
                    cache_pb2.Operation(add_sequence=cache_pb2.AddSequenceRequest(
                        sequence_id=sequence, tokens=range(token, token + PROMPT_TOKENS))),
                    cache_pb2.Operation(commit_tokens=cache_pb2.CommitTokensRequest(sequence_id=sequence, computed_tokens=PROMPT_TOKENS)),
                    cache_pb2.Operation(free_sequence=cache_pb2.FreeSequenceRequest(sequence_id=sequence))]
                token += PROMPT_TOKENS
    return [cache_pb2.ExecuteRequest(session=session, batch=cache_pb2.Batch(operations=batch)).SerializeToString() for batch in batches]


def execute_bytes(channel):
    """Execute for serialized requests. The answers stay serialized too, so that parsing does not
    slow the abuse down."""
    return channel.unary_unary("/pagoda.v1.CacheService/Execute")


class Abuser:
    """A client that sends batches, OUTSTANDING at a time, and looks for what it should not see."""

    def __init__(self, number, address, token, sessions, batch, other, *prompt):
        # The abuser's own processor time must not take the cores from the daemon and the quiet
        # tenant, as it would not on another machine.
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        signal.signal(signal.SIGUSR1, self._stop)
        self.over = False
        self._channel = authorized(connect(address), token)
        self._operations = int(batch)
        self._other = other
        self._prompt = list(map(int, prompt))
        self._counts = collections.Counter()
        self._seen = []  # All that it has learned of the other tenant.
        self._client = Client(self._channel, f"abuser-{number}", LEASE_MS)
        self._others = [Client(self._channel, "idle", LEASE_MS) for _ in range(int(sessions) - 1)]
        self._requests = itertools.cycle(make_requests(self._client.session, self._operations, (number + 1) << 24, self._prompt))
        self._execute = execute_bytes(self._channel)
        self._sent = collections.deque()
        self._rounds = 0
        threading.Thread(target=self._watch, daemon=True).start()

    def work(self):
        for _ in range(OUTSTANDING):
            while len(self._sent) < OUTSTANDING:
                self._sent.append(self._execute.future(next(self._requests), timeout=60))
            self._take(self._sent.popleft())
        self._rounds += 1
        if self._rounds % ROUNDS_BETWEEN_PRYINGS == 1:
            self._pry()
        return {} if self._rounds == 1 else None

    def obey(self, order):
        while self._sent:
            self._take(self._sent.popleft())
        return {"counts": self._counts, "seen": self._seen}

    def _stop(self, *signal_and_frame):
        self.over = True

    def _take(self, call):
        try:
            answer = call.result()
        except grpc.RpcError as error:
            self._hear(call_status(error).message)
            self._counts["refused"] += 1
            return
        self._counts["calls"] += 1
        self._counts["operations"] += self._operations
        if self._operations > 1 and self._counts["calls"] % CALLS_BETWEEN_LOOKS:
            return
        for outcome in cache_pb2.ExecuteResponse.FromString(answer).result.results:
            if outcome.HasField("error"):
                self._counts["refused"] += 1
                self._hear(outcome.error.message)
            elif outcome.HasField("match_prefix") and outcome.match_prefix.matched_tokens:
                self._seen.append(f"{outcome.match_prefix.matched_tokens} tokens of its prompt")

    def _hear(self, text):
        if self._other in text:
            self._seen.append(text)

    def _pry(self):
        """Asks for all that is not its own."""
        self._counts["pryings"] += 1
        admin = admin_pb2_grpc.AdminServiceStub(self._channel)
        self._try(lambda: self._hear(str(admin.ListTenants(admin_pb2.ListTenantsRequest(), timeout=60))))
        self._try(lambda: self._hear(str(admin.ListSessions(admin_pb2.ListSessionsRequest(), timeout=60))))
        self._try(lambda: self._hear(str(admin.InspectPrefix(admin_pb2.InspectPrefixRequest(tokens=self._prompt), timeout=60))))
        self._try(lambda: self._hear(str(self._client.pins())) or self._seen.extend(map(str, self._client.pins().pins)))
        self._try(lambda: self._matches({"tenant": self._other}))
        self._try(lambda: self._matches({"cache_salt": ""}))
        self._try(lambda: self._client.invalidate(self._prompt))
        self._try(lambda: self._client.stub.OpenSession(cache_pb2.OpenSessionRequest(tenant=self._other), timeout=60))

    def _try(self, what):
        try:
            what()
        except OperationError as error:
            self._counts["refused"] += 1
            self._hear(error.message.replace(f"'{self._other}'", ""))  # It sent this name itself.
        except grpc.RpcError as error:
            self._counts["refused"] += 1
            self._hear(call_status(error).message.replace(f"'{self._other}'", ""))

    def _matches(self, namespace):
        if matched := self._client.match(self._prompt, namespace=namespace).matched_tokens:
            self._seen.append(f"{matched} tokens of its prompt under {namespace}")

    def _watch(self):
        """Its tokens in the events."""
        stream = events_pb2_grpc.EventServiceStub(self._channel).Watch(events_pb2.WatchRequest())
        prompt = set(self._prompt)
        try:
            for message in stream:
                for event in message.events:
                    self._counts["events"] += 1
                    if any(prompt & set(block.tokens) for block in event.stored.blocks):
                        self._seen.append(str(event))
        except grpc.RpcError:
            pass  # It reads too slowly, and the log no longer has its next event.


if __name__ == "__main__":
    run_clients(Abuser)
