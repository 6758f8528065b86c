"""A client made only of the generated messages: the first client that a programmer would write in
any language."""

import os
import socket
import struct

import grpc
from google.rpc import error_details_pb2, status_pb2
from pagoda.v1 import cache_pb2, cache_pb2_grpc, mapping_pb2, types_pb2


def connect(address, options=()):
    """A plaintext channel to a daemon at "host:port" or "unix:/path". It never uses the
    environment's proxy."""
    return grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0), *options])


def handles(field):
    """The handles in a field of bytes: types.proto, BlockHandle."""
    return [types_pb2.BlockHandle(block_id=block_id, generation=generation, slot_index=slot_index)
            for block_id, generation, slot_index in struct.iter_unpack("<3I", field)]


def references(blocks):
    """A field of bytes with references to the blocks of these handles."""
    return b"".join(struct.pack("<2I", block.block_id, block.generation) for block in blocks)


class _Bearer(grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor, grpc.StreamUnaryClientInterceptor,
              grpc.StreamStreamClientInterceptor):
    def __init__(self, token):
        self._metadata = [("authorization", f"Bearer {token}")]

    def _call(self, go_on, details, request):
        return go_on(details._replace(metadata=[*(details.metadata or ()), *self._metadata]), request)

    intercept_unary_unary = intercept_unary_stream = intercept_stream_unary = intercept_stream_stream = _call


def authorized(channel, token):
    """The channel, with the token in each call."""
    return grpc.intercept_channel(channel, _Bearer(token))


class OperationError(Exception):
    """An operation's google.rpc.Status, or a call's."""

    def __init__(self, status):
        super().__init__(f"{reason_of(status)}: {status.message}")
        self.code = status.code
        self.message = status.message
        self.reason = reason_of(status)


def error_info(status):
    """The one ErrorInfo that every error of the daemon carries."""
    infos = []
    for detail in status.details:
        info = error_details_pb2.ErrorInfo()
        if detail.Unpack(info):
            infos.append(info)
    assert len(infos) == 1 and infos[0].domain == "pagoda", status
    return infos[0]


def reason_of(status):
    return error_info(status).reason


def call_status(rpc_error):
    """The google.rpc.Status of a failed call."""
    metadata = {entry.key: entry.value for entry in rpc_error.trailing_metadata() or ()}
    status = status_pb2.Status.FromString(metadata["grpc-status-details-bin"])
    assert status.code == rpc_error.code().value[0] and status.message == rpc_error.details()
    return status


class Pool:
    """A PoolMapping, with the client that can map it."""

    def __init__(self, client, mapping):
        self.client = client
        self.mapping = mapping

    def __getattr__(self, field):
        return getattr(self.mapping, field)

    def open(self, access):
        """A descriptor of its one segment, which the caller closes."""
        mappings, descriptors = self.client.map_pools(access)
        wanted = mappings.index(self.mapping)
        for position, descriptor in enumerate(descriptors):
            if position != wanted:
                os.close(descriptor)
        return descriptors[wanted]


def ask_to_map(path, request):
    """One request to the map socket, and its answer: (MapPoolsResponse, descriptors). `request` is
    a message, or bytes."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.settimeout(20)
        connection.connect(path)
        connection.send(request if isinstance(request, bytes) else request.SerializeToString())
        packet, descriptors, flags, _ = socket.recv_fds(connection, 1 << 18, 253, socket.MSG_CMSG_CLOEXEC)
    assert packet and not flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC)
    return mapping_pb2.MapPoolsResponse.FromString(packet), descriptors


class Client:
    """One session. Closes it at the end of a `with` block."""

    opened_here = []  # Every client of this process since the last close_all.

    def __init__(self, channel, name="e2e", lease_ms=0):
        self.stub = cache_pb2_grpc.CacheServiceStub(channel)
        self.opened = self.stub.OpenSession(cache_pb2.OpenSessionRequest(client_name=name, lease_ms=lease_ms), timeout=20)
        self.session = self.opened.session
        Client.opened_here.append(self)

    def batch(self, *operations, step=0, completed_step=0):
        """Runs one batch; returns its result as it came."""
        batch = cache_pb2.Batch(operations=operations, step=step, completed_step=completed_step)
        try:
            return self.stub.Execute(cache_pb2.ExecuteRequest(session=self.session, batch=batch), timeout=20).result
        except grpc.RpcError as error:
            raise OperationError(call_status(error)) from None

    def execute(self, *operations):
        """Runs one batch; returns the results of its operations."""
        return self.batch(*operations).results

    def run(self, step=0, completed_step=0, **operation):
        """Runs one operation, such as run(free_sequence=...), and returns its own result."""
        operation = cache_pb2.Operation(**operation)
        result = self.batch(operation, step=step, completed_step=completed_step).results[0]
        if result.HasField("error"):
            raise OperationError(result.error)
        assert result.WhichOneof("result") == operation.WhichOneof("operation")
        return getattr(result, result.WhichOneof("result"))

    def allocate(self, count):
        return handles(self.run(allocate_blocks=cache_pb2.AllocateBlocksRequest(count=count)).blocks)

    def free(self, blocks):
        return self.run(free_blocks=cache_pb2.FreeBlocksRequest(blocks=references(blocks)))

    def add(self, sequence_id, tokens, **fields):
        return self.run(add_sequence=cache_pb2.AddSequenceRequest(sequence_id=sequence_id, tokens=tokens, **fields))

    def commit(self, sequence_id, computed_tokens, tokens=()):
        return self.run(commit_tokens=cache_pb2.CommitTokensRequest(
            sequence_id=sequence_id, tokens=tokens, computed_tokens=computed_tokens))

    def append(self, sequence_id, tokens, computed_tokens=0):
        return self.run(append_tokens=cache_pb2.AppendTokensRequest(
            sequence_id=sequence_id, tokens=tokens, computed_tokens=computed_tokens))

    def free_sequence(self, sequence_id):
        return self.run(free_sequence=cache_pb2.FreeSequenceRequest(sequence_id=sequence_id))

    def match(self, tokens, **fields):
        return self.run(match_prefix=cache_pb2.MatchPrefixRequest(tokens=tokens, **fields))

    def fork(self, sequence_id, new_sequence_id):
        return self.run(fork_sequence=cache_pb2.ForkSequenceRequest(sequence_id=sequence_id, new_sequence_id=new_sequence_id))

    def truncate(self, sequence_id, token_count):
        return self.run(truncate_sequence=cache_pb2.TruncateSequenceRequest(sequence_id=sequence_id, token_count=token_count))

    def wait(self, ticket):
        return self.run(wait_for_ticket=cache_pb2.WaitForTicketRequest(ticket=ticket))

    def offload(self, tokens):
        """Moves a prefix down, to the last byte; returns how many blocks moved."""
        moved = self.run(offload_prefix=cache_pb2.OffloadPrefixRequest(tokens=tokens))
        self.wait(moved.ready_ticket)
        return moved.blocks

    def prefetch(self, tokens):
        """Moves a prefix up, to the last byte."""
        moved = self.run(prefetch_prefix=cache_pb2.PrefetchPrefixRequest(tokens=tokens))
        self.wait(moved.ready_ticket)
        return moved

    def pin(self, tokens, **fields):
        return self.run(pin_prefix=cache_pb2.PinPrefixRequest(tokens=tokens, **fields))

    def unpin(self, pin_id):
        return self.run(unpin_prefix=cache_pb2.UnpinPrefixRequest(pin_id=pin_id))

    def pins(self):
        return self.run(list_pins=cache_pb2.ListPinsRequest())

    def invalidate(self, tokens, **fields):
        return self.run(invalidate_prefix=cache_pb2.InvalidatePrefixRequest(tokens=tokens, **fields)).removed_blocks

    def retain(self, tokens, *ranges):
        return self.run(set_retention=cache_pb2.SetRetentionRequest(tokens=tokens, retention=ranges)).blocks

    def describe(self, sequence_id):
        return self.run(describe_sequence=cache_pb2.DescribeSequenceRequest(sequence_id=sequence_id))

    def pools(self):
        return [Pool(self, pool) for pool in self.run(describe_pools=cache_pb2.DescribePoolsRequest()).pools]

    def map_pools(self, access):
        """The pools, and a descriptor for each, which the caller closes."""
        request = mapping_pb2.MapPoolsRequest(session=self.session, access=access)
        response, descriptors = ask_to_map(self.opened.map_socket, request)
        if response.HasField("error"):
            raise OperationError(response.error)
        assert len(descriptors) == len(response.pools)
        return list(response.pools), descriptors

    def cache(self, sequence_id, tokens, **fields):
        """Adds a sequence, declares all its KV computed and frees it, so that its blocks are
        cached."""
        self.wait(self.add(sequence_id, tokens, **fields).ready_ticket)
        self.commit(sequence_id, len(tokens))
        self.free_sequence(sequence_id)

    def close(self):
        self.stub.CloseSession(cache_pb2.CloseSessionRequest(session=self.session), timeout=20)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        if error[0] is None:
            self.close()

    @classmethod
    def close_all(cls):
        """Closes everything still open, after a failed test too. The session or its daemon can
        already have ended."""
        while cls.opened_here:
            try:
                cls.opened_here.pop().close()
            except (grpc.RpcError, ValueError):  # ValueError: the channel is closed.
                pass
