"""The generated messages and services import beside the system's protobuf, and carry the
contract."""

import unittest

import google.protobuf
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2
from pagoda.v1 import admin_pb2_grpc, cache_pb2, cache_pb2_grpc, engine_pb2_grpc, events_pb2_grpc


class PythonStubsTest(unittest.TestCase):
    def test_system_protobuf_is_not_shadowed(self):
        self.assertTrue(hasattr(google.protobuf, "__version__"))

    def test_every_service_has_a_stub(self):
        for module, name in [
            (cache_pb2_grpc, "CacheServiceStub"),
            (events_pb2_grpc, "EventServiceStub"),
            (admin_pb2_grpc, "AdminServiceStub"),
            (engine_pb2_grpc, "EngineServiceStub"),
        ]:
            self.assertTrue(hasattr(module, name), name)

    def test_an_operation_survives_the_wire(self):
        operation = cache_pb2.Operation(
            add_sequence=cache_pb2.AddSequenceRequest(sequence_id=7, tokens=[1, 2, 3])
        )
        parsed = cache_pb2.Operation.FromString(operation.SerializeToString())
        self.assertEqual(parsed.WhichOneof("operation"), "add_sequence")
        self.assertEqual(list(parsed.add_sequence.tokens), [1, 2, 3])

    def test_error_details_unpack_from_a_result(self):
        detail = any_pb2.Any()
        detail.Pack(error_details_pb2.ErrorInfo(domain="pagoda", reason="BLOCKS_EXHAUSTED"))
        result = cache_pb2.OperationResult(error=status_pb2.Status(code=8, details=[detail]))
        info = error_details_pb2.ErrorInfo()
        self.assertTrue(result.error.details[0].Unpack(info))
        self.assertEqual(info.reason, "BLOCKS_EXHAUSTED")


if __name__ == "__main__":
    unittest.main()
