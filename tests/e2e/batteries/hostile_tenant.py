"""A tenant that attacks the daemon and the other tenants, for test_battery_hostile.py.
forked_clients.py starts it.

    hostile_tenant.py ... ADDRESS TOKEN ATTACK FACTS

ATTACK names a function of ATTACKS, which runs again and again until SIGUSR1. FACTS, in JSON, are
what an attacker can learn: ids, prompts, addresses, even another session's token. An attack appends
to `me.managed` what must not succeed.
"""

import collections
import fcntl
import json
import os
import signal
import socket
import struct
import threading
import time
import urllib.error
import urllib.request

import grpc
from forked_clients import run_clients
from pagoda_client import Client, OperationError, ask_to_map, authorized, call_status, connect, handles, reason_of
from pagoda.v1 import admin_pb2, admin_pb2_grpc, cache_pb2, engine_pb2, engine_pb2_grpc, events_pb2, events_pb2_grpc, mapping_pb2, types_pb2

# On a busy machine an attack can need a minute to build its messages.
LEASE_MS = 600_000
# The bytes of tokens in one message. The daemon accepts messages of up to 16 MiB.
MESSAGE_BYTES = 14 << 20
HTTP = urllib.request.build_opener(urllib.request.ProxyHandler({}))
ATTACKS = {}


def attack(function):
    ATTACKS[function.__name__] = function
    return function


def operation(**what):
    return cache_pb2.Operation(**what)


def session_ref(session_id, token=None, high=None):
    """A SessionRef; `token` is another's, whose fields it takes."""
    ref = types_pb2.SessionRef()
    if token is not None:
        ref.CopyFrom(token)
    ref.session_id = session_id
    return ref


class Hostile:
    def __init__(self, number, address, token, name, facts):
        # An attacker's program runs on another machine. Here it must not take the processors from
        # the daemon and the other clients: with a lower niceness alone, it would keep a processor
        # for a whole time slice.
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        signal.signal(signal.SIGUSR1, self._stop)
        self.over = False
        self.facts = json.loads(facts)
        self.counts = collections.Counter()
        self.managed = []
        self.state = {}
        self.token = token
        self.channel = self.connect(address)
        self.client = Client(self.channel, "hostile", LEASE_MS)
        self.sequences = iter(range(1, 1 << 62))
        self._attack = ATTACKS[name]

    def work(self):
        """The first round comes before anybody measures: in it most attacks make what they send."""
        self._attack(self)
        self.counts["rounds"] += 1
        return {} if self.counts["rounds"] == 1 else None

    def obey(self, order):
        return {"counts": self.counts, "managed": self.managed[:20]}

    def _stop(self, *signal_and_frame):
        self.over = True

    # --- Helpers of attacks ---

    def connect(self, address):
        unlimited = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
        return authorized(connect(address, unlimited), self.token)

    def tries(self, call):
        """The call's answer; None where the daemon refuses it."""
        self.counts["tries"] += 1
        try:
            return call()
        except (OperationError, grpc.RpcError) as error:
            self.counts["refused"] += 1
            self.state["refusal"] = error
            return None

    def must_fail(self, what, reason, call):
        """The daemon has to refuse the call for this reason. A call that fails for another reason
        could have succeeded without it."""
        if self.tries(call) is not None:
            self.managed.append(what)
        elif (told := self._refusal()) != reason:
            self.managed.append(f"{what}: refused with {told}, not with {reason}")

    def _refusal(self):
        error = self.state["refusal"]
        if isinstance(error, OperationError):
            return error.reason
        try:
            return reason_of(call_status(error))
        except KeyError:  # The error is not the daemon's: for example, the call took too long.
            return error.code().name

    def batch(self, operations):
        """Sends them without a look at the answers' parts. Returns how many succeeded."""
        answer = self.tries(lambda: self.client.batch(*operations))
        return 0 if answer is None else sum(not result.HasField("error") for result in answer.results)

    def add(self, tokens, **fields):
        """A new sequence of this client: its id, or None where the daemon refuses it."""
        sequence = next(self.sequences)
        return None if self.tries(lambda: self.client.add(sequence, tokens, **fields)) is None else sequence


def field(number, payload):
    """A field of a message, on the wire."""
    encoded, rest = bytearray([number << 3 | 2] if number < 16 else [(number << 3 | 2) & 127 | 128, number >> 4]), len(payload)
    while rest >= 128:
        encoded.append(rest % 128 + 128)
        rest //= 128
    encoded.append(rest)
    return bytes(encoded) + payload


def send_again_and_again(me, method, make):
    """The request that `make` returns behind its session, a few at a time, again and again."""
    if "send" not in me.state:
        me.state["request"] = field(1, me.client.session.SerializeToString()) + make()
        me.state["send"] = me.channel.unary_unary(f"/pagoda.v1.CacheService/{method}")
        me.state["calls"] = []
    calls = me.state["calls"]
    while len(calls) < 3:
        calls.append(me.state["send"].future(me.state["request"], timeout=60))
    me.tries(calls.pop(0).result)


def execute_again_and_again(me, make):
    """A batch of the operation that `make` returns."""
    send_again_and_again(me, "Execute", lambda: field(2, field(1, make())))


# --- Memory ---

@attack
def forks_of_a_huge_prompt(me):
    """Forks one long prompt by the thousand. The prompt has almost no blocks."""
    if me.state.get("sequence") is None:
        me.state["sequence"] = me.add(range(100_000, 160_000), reserved_tokens=1)
    parent = me.state["sequence"] or 1
    me.batch([operation(fork_sequence=cache_pb2.ForkSequenceRequest(sequence_id=parent, new_sequence_id=next(me.sequences)))
              for _ in range(500)])


@attack
def prompts_without_blocks(me):
    """Prompts that need no blocks, each with an image: the tokens and the images take memory, but
    no block."""
    if "operation" not in me.state:
        image = types_pb2.MultimodalItem(digest=b"i" * 32, token_start=0, token_count=60_000)
        me.state["operation"] = operation(add_sequence=cache_pb2.AddSequenceRequest(
            tokens=range(60_000), reserved_tokens=1, multimodal_items=[image]))
    for _ in range(4):
        me.state["operation"].add_sequence.sequence_id = next(me.sequences)
        me.batch([me.state["operation"]])


@attack
def retention_ranges_by_the_thousand(me):
    """Retention in as many ranges as one request can have."""
    if "operation" not in me.state:
        ranges = [types_pb2.RetentionRange(token_start=i, token_end=i + 1, priority=50) for i in range(60_000)]
        me.state["operation"] = operation(add_sequence=cache_pb2.AddSequenceRequest(tokens=range(60_000), reserved_tokens=1, retention=ranges))
    me.state["operation"].add_sequence.sequence_id = next(me.sequences)
    me.batch([me.state["operation"]])


# --- Sessions of other tenants ---

def predict(outputs, count):
    """What std::mt19937_64 gives after 312 outputs in a row."""
    mask = (1 << 64) - 1

    def untemper(x):
        x ^= x >> 43
        x ^= (x << 37) & 0xFFF7EEE000000000
        y = x
        for _ in range(4):
            y = x ^ ((y << 17) & 0x71D67FFFEDA60000)
        x = y & mask
        for _ in range(3):
            y = x ^ ((y >> 29) & 0x5555555555555555)
        return y & mask

    def temper(x):
        x ^= (x >> 29) & 0x5555555555555555
        x ^= (x << 17) & 0x71D67FFFEDA60000
        x ^= (x << 37) & 0xFFF7EEE000000000
        return (x & mask) ^ ((x & mask) >> 43)

    state = [untemper(output) for output in outputs]
    for i in range(count):
        x = (state[i] & 0xFFFFFFFF80000000) | (state[i + 1] & 0x7FFFFFFF)
        state.append(state[i + 156] ^ (x >> 1) ^ (0xB5026F5AA96619E9 if x & 1 else 0))
    return [temper(word) for word in state[312:]]


@attack
def predicted_tokens(me):
    """312 of its own sessions predict the next tokens, if they come from a simple generator. The
    map socket needs only a session's token."""
    if time.monotonic() > me.state.get("until", 0):
        me.state["until"] = 0
    own = me.state.get("own", []) if me.state.get("until") else []
    while len(own) < 312:
        opened = me.client.stub.OpenSession(cache_pb2.OpenSessionRequest(client_name="h", lease_ms=LEASE_MS), timeout=20)
        me.client.stub.CloseSession(cache_pb2.CloseSessionRequest(session=opened.session), timeout=20)
        if own and opened.session.session_id != own[-1].session_id + 1:
            own = []
        own.append(opened.session)
    if not me.state["until"]:  # Other tenants open sessions meanwhile.
        me.state |= {"own": own, "guesses": predict([session.token for session in own], 24), "until": time.monotonic() + 1.5}
    begin = own[-1].session_id + 1
    for _ in range(2):
        for i, guess in enumerate(me.state["guesses"]):
            ref = types_pb2.SessionRef(session_id=begin + i, token=guess)
            for name in ref.DESCRIPTOR.fields_by_name:
                if name not in ("session_id", "token"):
                    setattr(ref, name, getattr(own[-1], name))
            me.counts["tries"] += 1
            try:
                response, descriptors = ask_to_map(me.client.opened.map_socket, mapping_pb2.MapPoolsRequest(
                    session=ref, access=mapping_pb2.MAP_ACCESS_READ_WRITE))
            except (OSError, AssertionError):
                continue
            for descriptor in descriptors:
                os.close(descriptor)
            if not response.HasField("error"):
                me.managed.append(f"mapped the pools for writing with the predicted token of session {ref.session_id}")
        time.sleep(0.05)


@attack
def closes_others_sessions(me):
    """Every id, with its own token, with none, with one that it has heard of."""
    known = types_pb2.SessionRef()
    known.ParseFromString(bytes.fromhex(me.facts["quiet_session"]))
    for session_id in range(0, known.session_id + 3):
        if session_id == me.client.session.session_id:
            continue
        for token in (me.client.session, None, known):
            ref = session_ref(session_id, token)
            me.must_fail(f"closed session {session_id}", "UNKNOWN_SESSION",
                         lambda ref=ref: me.client.stub.CloseSession(cache_pb2.CloseSessionRequest(session=ref), timeout=20))
            me.must_fail(f"kept session {session_id} alive", "UNKNOWN_SESSION",
                         lambda ref=ref: me.client.stub.KeepAlive(cache_pb2.KeepAliveRequest(session=ref), timeout=20))
            me.must_fail(f"ran a batch as session {session_id}", "UNKNOWN_SESSION",
                         lambda ref=ref: me.client.stub.Execute(cache_pb2.ExecuteRequest(session=ref, batch=cache_pb2.Batch()), timeout=20))


@attack
def acknowledges_others_quarantines(me):
    """Even with the quarantined session's own token, another tenant cannot end the quarantine. Many
    sessions come and go before.

    The quarantine of an earlier run needs a daemon that has one: tiers/test_quarantine.py."""
    for _ in range(0 if me.counts["rounds"] else me.facts["sessions_before"] // 16):
        opening = [me.client.stub.OpenSession.future(cache_pb2.OpenSessionRequest(client_name="h", lease_ms=LEASE_MS), timeout=20)
                   for _ in range(16)]
        closing = [me.client.stub.CloseSession.future(cache_pb2.CloseSessionRequest(session=call.result().session), timeout=20)
                   for call in opening]
        for call in closing:
            call.result()
    ref = types_pb2.SessionRef()
    ref.ParseFromString(bytes.fromhex(me.facts["quarantined_session"]))
    for token in (ref, me.client.session, None):
        guess = session_ref(ref.session_id, token)
        me.must_fail("acknowledged another tenant's quarantine", "UNKNOWN_SESSION",
                     lambda guess=guess: me.client.stub.CloseSession(cache_pb2.CloseSessionRequest(session=guess), timeout=20))


@attack
def does_what_operators_do(me):
    """With requests that an operator's token would have granted."""
    admin = admin_pb2_grpc.AdminServiceStub(me.channel)
    for name, request in (("ResetPrefixCache", admin_pb2.ResetPrefixCacheRequest()),
                          ("EndSession", admin_pb2.EndSessionRequest(session_id=me.facts["quiet_id"])),
                          # Its writer is alive, so even an operator is refused without force.
                          ("ReleaseQuarantine", admin_pb2.ReleaseQuarantineRequest(session_id=me.facts["quarantined_id"], force=True)),
                          ("ListSessions", admin_pb2.ListSessionsRequest()),
                          ("ListSequences", admin_pb2.ListSequencesRequest()), ("InspectPrefix", admin_pb2.InspectPrefixRequest(tokens=[1])),
                          ("Drain", admin_pb2.DrainRequest())):
        me.must_fail(f"called {name}", "PERMISSION_DENIED", lambda name=name, request=request: getattr(admin, name)(request, timeout=20))


# --- Prefixes and pins of other tenants ---

@attack
def pins_by_the_thousand(me):
    """Takes as many pins as the daemon gives, on two blocks."""
    prompt = list(range(32))
    if "cached" not in me.state:
        me.client.cache(next(me.sequences), prompt)
        me.state["cached"] = True
    pins = [operation(pin_prefix=cache_pb2.PinPrefixRequest(tokens=prompt, lease_ms=60_000))] * 4096
    for _ in range(1 if me.counts["rounds"] else 20):
        if me.batch(pins) < len(pins):
            break


@attack
def removes_others_pins(me):
    for pin in range(1, max(me.facts["pins"]) + 3):
        me.must_fail(f"unpinned {pin}", "UNKNOWN_PIN", lambda pin=pin: me.client.unpin(pin))


@attack
def invalidates_others_prefixes(me):
    """The default tenant's, whose cache it shares, by name; and all of a name space."""
    for prompt, namespace in ((me.facts["salted_prompt"], {"cache_salt": me.facts["salt"]}), (me.facts["common_prompt"], {}), ([], {})):
        me.tries(lambda prompt=prompt, namespace=namespace: me.client.invalidate(prompt, namespace=namespace))
    me.must_fail("invalidated another tenant's prefixes", "PERMISSION_DENIED",
                 lambda: me.client.invalidate(me.facts["quiet_prompt"], namespace={"tenant": "quiet"}))


@attack
def offloads_others_prefixes(me):
    """Offloads the default tenant's prompts, with and without its salt, to a slower tier."""
    for prompt, namespace in ((me.facts["salted_prompt"], {"cache_salt": me.facts["salt"]}), (me.facts["common_prompt"], {})):
        me.must_fail("offloaded the default tenant's prefix", "PERMISSION_DENIED", lambda prompt=prompt, namespace=namespace: me.client.run(
            offload_prefix=cache_pb2.OffloadPrefixRequest(tokens=prompt, namespace=namespace)))


@attack
def makes_others_prefixes_evictable_first(me):
    """Sets priority 0 on the default tenant's prompts, gives the retention of prompts that it
    computes itself, and repeats both with a duration of 1 ms."""
    first = types_pb2.RetentionRange(token_start=0, priority=0)
    soon = types_pb2.RetentionRange(token_start=0, priority=100, duration_ms=1)
    for prompt, namespace in ((me.facts["salted_prompt"], {"cache_salt": me.facts["salt"]}), (me.facts["common_prompt"], {})):
        for retention in (first, soon):
            named = me.tries(lambda: me.client.run(set_retention=cache_pb2.SetRetentionRequest(
                tokens=prompt, namespace=namespace, retention=[retention])).blocks)
            if named and retention is first:
                me.managed.append(f"set priority 0 on {named} blocks of the default tenant")
            sequence = me.add(prompt, namespace=namespace, retention=[retention])
            if sequence is not None:
                me.tries(lambda: me.client.commit(sequence, len(prompt)))
                me.tries(lambda: me.client.free_sequence(sequence))


@attack
def reads_others_salts(me):
    """Looks for the salt in pins, in events and in the snapshot of the cached blocks."""
    def look(what, text):
        me.counts["looks"] += 1
        if me.facts["salt"] in text:
            me.managed.append(f"read another tenant's salt in {what}")

    pins = me.tries(me.client.pins)
    look("the pins", str(pins))
    watch = me.state.setdefault("watch", events_pb2_grpc.EventServiceStub(me.channel).Watch(events_pb2.WatchRequest(snapshot=True)))
    try:
        for message in watch:
            look("the events", str(message.events))
            if message.snapshot_end:
                break
    except grpc.RpcError:
        pass
    watch.cancel()
    del me.state["watch"]


# --- The quota ---

def distinct(tables):
    return {block.block_id for table in tables for block in handles(table.blocks) if block.block_id != 0xFFFFFFFF}


@attack
def cuts_to_escape_the_quota(me):
    """Sequences whose blocks are cached, each cut below its last token, so that each goes on in a
    block of its own."""
    per_block = me.facts["tokens_per_block"]
    held, token = set(), 1_000_000 + 100_000 * me.counts["rounds"]
    for _ in range(60):
        sequence = me.add(range(token, token + 2 * per_block))
        token += 2 * per_block
        if sequence is None:
            break
        me.tries(lambda: me.client.commit(sequence, 2 * per_block))
        me.tries(lambda: me.client.truncate(sequence, 2 * per_block - 1))
        held |= distinct(me.client.describe(sequence).tables)
        me.state.setdefault("sequences", []).append(sequence)
    if len(held) > me.facts["quota"]:
        me.managed.append(f"held {len(held)} blocks with a quota of {me.facts['quota']}")
    for sequence in me.state.pop("sequences", []):
        me.client.free_sequence(sequence)


@attack
def shares_to_escape_the_quota(me):
    """What it publishes is the default tenant's; it goes on holding that."""
    per_block = me.facts["tokens_per_block"]
    held, token = set(), 5_000_000 + 100_000 * me.counts["rounds"]
    sequences = []
    for _ in range(60):
        sequence = me.add(range(token, token + 2 * per_block))
        token += 2 * per_block
        if sequence is None:
            break
        sequences.append(sequence)
        me.tries(lambda: me.client.commit(sequence, 2 * per_block))
        held |= distinct(me.client.describe(sequence).tables)
    if len(held) > me.facts["quota"]:
        me.managed.append(f"held {len(held)} blocks with a quota of {me.facts['quota']}")
    for sequence in sequences:
        me.client.free_sequence(sequence)


# --- The lock ---

@attack
def matches_a_message_of_tokens(me):
    """One operation of 14 MiB, with an image. The daemon must not do the expensive part under the
    lock."""
    item = types_pb2.MultimodalItem(digest=b"i" * 32, token_start=0, token_count=1)
    execute_again_and_again(me, lambda: field(8, field(1, bytes(range(1, 101)) * (MESSAGE_BYTES // 100)) + field(4, item.SerializeToString())))


@attack
def fetches_a_message_of_tokens(me):
    """A call that is not a batch. The daemon must not read it on one of gRPC's few threads."""
    tokens = cache_pb2.FetchPrefixRequest.DESCRIPTOR.fields_by_name["tokens"].number
    send_again_and_again(me, "FetchPrefix", lambda: field(tokens, bytes(range(1, 101)) * (MESSAGE_BYTES // 200)))


@attack
def retention_ranges_in_one_message(me):
    """One operation with as many retention ranges as a message holds."""
    execute_again_and_again(me, lambda: field(20, cache_pb2.SetRetentionRequest(tokens=[1], retention=[
        types_pb2.RetentionRange(token_start=i, token_end=i + 1) for i in range(1_200_000)]).SerializeToString()))


# --- Connections ---

def _send_some(connection, data, seconds):
    connection.settimeout(seconds)
    try:
        connection.sendall(data)
        return True
    except OSError:
        return False


@attack
def a_header_without_end(me):
    """gRPC, without credentials: one header whose value of 32 MiB never ends (CVE-2023-33953)."""
    def frame(kind, flags, payload):
        return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", 1 if kind in (1, 9) else 0) + payload

    host, port = me.facts["grpc_address"].rsplit(":", 1)
    length = (32 << 20) - 127
    encoded = bytearray([0x7F])  # A string without Huffman code. Its length is 127 and the rest, 7 bits a byte.
    while length >= 128:
        encoded.append(length % 128 + 128)
        length //= 128
    encoded.append(length)
    begin = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, b"") + frame(1, 0, b"\x00\x01x" + bytes(encoded))
    me.counts["tries"] += 1
    with socket.create_connection((host, int(port)), timeout=5) as connection:
        going = _send_some(connection, begin, 5)
        for _ in range(2048):
            if not going or me.over:
                break
            going = _send_some(connection, frame(9, 0, b"a" * (16 << 10)), 5)
            me.counts["sent_kib"] += 16


@attack
def silent_http_connections(me):
    """Connections to the HTTP port that say nothing, by the hundred a second."""
    host, port = me.facts["http_address"].rsplit(":", 1)
    held = me.state.setdefault("held", collections.deque())
    for _ in range(40):
        connection = socket.socket()
        connection.setblocking(False)
        connection.connect_ex((host, int(port)))
        me.counts["tries"] += 1
        held.append(connection)
        if len(held) > 800:
            held.popleft().close()
    time.sleep(0.1)


@attack
def posts_from_a_foreign_page(me):
    """Requests to the engine as a browser sends them for another site's page, and requests without
    a token. One rule alone refuses each."""
    for what, code, headers in (("a page of another site", 403, {"Host": "localhost", "Origin": "https://evil.example"}),
                                ("a caller without a token", 401, {"Host": "localhost"}),
                                # DNS rebinding: the page's own host name resolves to this machine.
                                ("another host's name", 421, {"Host": "evil.example", "Origin": "http://evil.example"})):
        token = {} if what == "a caller without a token" else {"Authorization": f"Bearer {me.token}"}
        request = urllib.request.Request(f"http://{me.facts['engine_http_address']}/v1/completions", method="POST",
                                         data=json.dumps({"prompt": [1, 2, 3], "max_tokens": 1}).encode(),
                                         headers={"Content-Type": "application/json"} | headers | token)
        me.counts["tries"] += 1
        try:
            with HTTP.open(request, timeout=20) as reply:
                me.managed.append(f"{what} generates: {reply.status}")
        except urllib.error.HTTPError as error:
            me.counts["refused"] += 1
            if error.code != code:
                me.managed.append(f"{what} is refused with {error.code}, not with {code}")


@attack
def posts_costly_bodies(me):
    """Bodies to the engine that do not end, with and without a token, and JSON of many small
    objects."""
    host, port = me.facts["engine_http_address"].rsplit(":", 1)
    slow = me.state.setdefault("slow", [])
    for old in slow:
        old.close()
    slow[:] = [socket.create_connection((host, int(port)), timeout=20) for _ in range(70)]
    for number, connection in enumerate(slow):
        token = f"Authorization: Bearer {me.token}\r\n" if number % 2 else ""
        connection.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n{token}Content-Length: 10000000\r\n\r\n{{".encode())
    if "objects" not in me.state:
        me.state["objects"] = b'{"model":"m","prompt":[1],"metadata":[{}' + b",{}" * 160_000 + b"]}"
    request = urllib.request.Request(f"http://{me.facts['engine_http_address']}/v1/completions", method="POST", data=me.state["objects"],
                                     headers={"Authorization": f"Bearer {me.token}"})
    me.counts["tries"] += 1
    try:
        with HTTP.open(request, timeout=20):
            me.managed.append("a model that is not there generates")
    except urllib.error.HTTPError as error:
        me.counts["refused"] += 1
        if error.code not in (404, 429):
            me.managed.append(f"a model that is not there is refused with {error.code}")


@attack
def fills_the_engines_queue(me):
    """Starts as many generations as the engine lets wait, each as long as the quota allows (24
    blocks of 16 tokens; a longer one would be refused at once)."""
    calls = me.state.setdefault("calls", [])
    if "stub" not in me.state:
        me.state["stub"] = engine_pb2_grpc.EngineServiceStub(me.connect(me.facts["engine_address"]))
    calls[:] = [call for call in calls if call.is_active()]
    while len(calls) < 400:
        me.counts["tries"] += 1
        calls.append(me.state["stub"].Generate(engine_pb2.GenerateRequest(prompt_tokens=[5, 6, 7], max_new_tokens=380)))
    time.sleep(0.05)


@attack
def locks_the_pools(me):
    """A reader's descriptor is enough for flock(): the next start must not wait for it."""
    if "descriptors" in me.state:
        return time.sleep(0.05)
    _, me.state["descriptors"] = me.client.map_pools(mapping_pb2.MAP_ACCESS_READ)

    def lock(descriptor):
        fcntl.flock(descriptor, fcntl.LOCK_EX)  # Returns when the daemon's process ends and its own lock with it.
        me.counts["locked"] += 1

    for descriptor in me.state["descriptors"]:
        me.counts["tries"] += 1
        threading.Thread(target=lock, args=[descriptor], daemon=True).start()


if __name__ == "__main__":
    run_clients(Hostile)
