"""A daemon that loses some copies or answers. pagodad copies in memory and never fails, so this
proxy stands before it and reports losses in pagodad's words (proto/pagoda/v1/cache.proto,
ShortenedSequence; manager/sequences/running_sequences.cc, CheckCommit and Shorten)."""

import concurrent.futures
import struct

import grpc
from google.rpc import error_details_pb2, status_pb2
from pagoda.v1 import cache_pb2, cache_pb2_grpc
from pagoda_client import connect

DECLARING = ("commit_tokens", "append_tokens")


def kv_lost(text):
    status = status_pb2.Status(code=grpc.StatusCode.FAILED_PRECONDITION.value[0], message=text)
    status.details.add().Pack(error_details_pb2.ErrorInfo(domain="pagoda", reason="KV_LOST"))
    return status


class LosingDaemon(cache_pb2_grpc.CacheServiceServicer):
    """Forwards unary calls to pagodad at `target`, for one session. `lose` makes a sequence's KV
    shorter."""

    def __init__(self, target):
        self._channel = connect(target)
        self._pagodad = cache_pb2_grpc.CacheServiceStub(self._channel)
        self._lost = {}  # By sequence: ShortenedSequence.
        self._named = {}  # By sequence: the losses that a commit has acknowledged.
        self._server = grpc.server(concurrent.futures.ThreadPoolExecutor(2))
        cache_pb2_grpc.add_CacheServiceServicer_to_server(self, self._server)
        self.address = "127.0.0.1:%d" % self._server.add_insecure_port("127.0.0.1:0")
        self.declared = []  # The known_losses of each commit that ran.
        self.swallowed = 0  # The next so many answers do not reach the client. Their batches run.
        self.received = 0  # Batches that have arrived.

    def lose(self, sequence_id, computed_tokens, must_be_freed=False):
        """A copy fails: the KV of a sequence is complete for its first computed_tokens only."""
        losses = self._lost[sequence_id].losses + 1 if sequence_id in self._lost else 1
        self._lost[sequence_id] = cache_pb2.ShortenedSequence(
            sequence_id=sequence_id, computed_tokens=computed_tokens, losses=losses, must_be_freed=must_be_freed)

    def OpenSession(self, request, context):
        return self._pagodad.OpenSession(request)

    def CloseSession(self, request, context):
        return self._pagodad.CloseSession(request)

    def KeepAlive(self, request, context):
        return self._pagodad.KeepAlive(request)

    def Execute(self, request, context):
        self.received += 1
        refused, forwarded, withheld = {}, [], {}
        for number, operation in enumerate(request.batch.operations):
            if operation.WhichOneof("operation") == "append_step":
                withheld[number] = self._withhold(operation.append_step)
                forwarded.append(operation)
            elif refusal := self._refusal(operation):
                refused[number] = refusal
            else:
                forwarded.append(operation)
                self._pass(operation)
        batch = cache_pb2.Batch(operations=forwarded, step=request.batch.step, completed_step=request.batch.completed_step,
                                retry_id=request.batch.retry_id)
        result = self._pagodad.Execute(cache_pb2.ExecuteRequest(session=request.session, batch=batch)).result
        if self.swallowed:
            self.swallowed -= 1
            context.abort(grpc.StatusCode.UNAVAILABLE, "the answer was lost")
        ran = iter(result.results)
        results = [cache_pb2.OperationResult(error=refused[number]) if number in refused else next(ran)
                   for number in range(len(request.batch.operations))]
        for number, failures in withheld.items():
            self._give_back(results[number].append_step, failures)
        shortened = [lost for name, lost in self._lost.items() if lost.losses > self._named.get(name, 0)]
        return cache_pb2.ExecuteResponse(result=cache_pb2.BatchResult(
            results=results, revision=result.revision, completed_ticket=result.completed_ticket, shortened=shortened))

    def _refusal(self, operation):
        kind = operation.WhichOneof("operation")
        request = getattr(operation, kind)
        lost = self._lost.get(getattr(request, "sequence_id", 0))
        if lost is None:
            return None
        if lost.must_be_freed and kind in (*DECLARING, "reserve_tokens", "fork_sequence"):
            return kv_lost("the sequence can only be freed")
        if kind in DECLARING and request.computed_tokens and request.known_losses < lost.losses:
            return kv_lost(f"a copy failed: only {lost.computed_tokens} tokens are computed")
        return None

    def _withhold(self, step):
        """Removes from a step, of one token for each sequence, the sequences that do not know of
        their loss. Returns their errors by their index."""
        count = len(step.sequence_ids)
        computed = list(step.computed_tokens) or [0] * count
        known = list(step.known_losses) or [0] * count
        failures = {index: kv_lost("a copy failed") for index, name in enumerate(step.sequence_ids)
                    if name in self._lost and computed[index] and known[index] < self._lost[name].losses}
        for index, name in enumerate(step.sequence_ids):
            if index not in failures:
                self._named[name] = max(self._named.get(name, 0), known[index])
        kept = [index for index in range(count) if index not in failures]
        step.CopyFrom(cache_pb2.AppendStepRequest(
            sequence_ids=[step.sequence_ids[index] for index in kept], tokens=[step.tokens[index] for index in kept],
            computed_tokens=[computed[index] for index in kept]))
        return failures

    @staticmethod
    def _give_back(result, failures):
        """The step's result with what was withheld: indexes count as the client has them."""
        grown = list(struct.iter_unpack("<3I", result.grown))
        places = [index for index in range(len(grown) + len(result.failed) + len(failures) + 4096) if index not in failures]
        result.grown = b"".join(struct.pack("<3I", places[index], *entries) for index, *entries in grown)
        for failed in result.failed:
            failed.index = places[failed.index]
        for index, error in failures.items():
            result.failed.add(index=index, error=error)

    def _pass(self, operation):
        """pagodad itself knows of no loss."""
        kind = operation.WhichOneof("operation")
        request = getattr(operation, kind)
        if kind in DECLARING:
            self.declared.append(request.known_losses)
            self._named[request.sequence_id] = max(self._named.get(request.sequence_id, 0), request.known_losses)
            request.known_losses = 0
        elif kind == "fork_sequence" and request.sequence_id in self._lost:
            inherited = cache_pb2.ShortenedSequence()
            inherited.CopyFrom(self._lost[request.sequence_id])
            inherited.sequence_id = request.new_sequence_id
            self._lost[request.new_sequence_id] = inherited
            self._named[request.new_sequence_id] = self._named.get(request.sequence_id, 0)
        elif kind == "free_sequence":
            self._lost.pop(request.sequence_id, None)

    def __enter__(self):
        self._server.start()
        return self

    def __exit__(self, *error):
        self._server.stop(None).wait()
        self._channel.close()
