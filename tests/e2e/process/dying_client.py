"""A client that is never done: test_lease.py kills it in the middle of its batches.

    dying_client.py ADDRESS LEASE_MS    prints a line for every batch that was answered
"""

import itertools
import sys

from pagoda_client import Client, connect
from pagoda.v1 import cache_pb2


def batches(session):
    """Takes raw blocks and keeps them. Its sequences grow, commit, and are freed some batches
    later."""
    for number in itertools.count():
        prompt = range(1000 * number, 1000 * number + 6)
        operations = [
            cache_pb2.Operation(add_sequence=cache_pb2.AddSequenceRequest(sequence_id=number, tokens=prompt)),
            cache_pb2.Operation(append_tokens=cache_pb2.AppendTokensRequest(
                sequence_id=number, tokens=[1, 2, 3], computed_tokens=8)),
        ]
        if number < 5:
            operations.append(cache_pb2.Operation(allocate_blocks=cache_pb2.AllocateBlocksRequest(count=1)))
        if number >= 3:
            operations.append(cache_pb2.Operation(
                free_sequence=cache_pb2.FreeSequenceRequest(sequence_id=number - 3)))
        yield cache_pb2.SessionRequest(session=session, batch=cache_pb2.Batch(operations=operations), batch_id=number)


def main():
    client = Client(connect(sys.argv[1]), "dying", lease_ms=int(sys.argv[2]))
    for response in client.stub.Session(batches(client.session)):
        print(response.batch_id, flush=True)


if __name__ == "__main__":
    main()
