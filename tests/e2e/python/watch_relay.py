"""Stands before pagodad and hands its Watch streams on, less what a test takes out of them."""

import concurrent.futures

import grpc
from pagoda.v1 import events_pb2_grpc
from pagoda_client import connect


class WatchRelay(events_pb2_grpc.EventServiceServicer):
    """Serves at `address` what the daemon at `target` sends."""

    def __init__(self, target):
        self._channel = connect(target)
        self._pagodad = events_pb2_grpc.EventServiceStub(self._channel)
        self._server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
        events_pb2_grpc.add_EventServiceServicer_to_server(self, self._server)
        self.address = "127.0.0.1:%d" % self._server.add_insecure_port("127.0.0.1:0")
        self.requests = []
        self.loses = lambda message: False  # Whether to drop a message. The stream continues.
        self.breaks = lambda message: False  # Whether to break the stream instead of sending a message.

    def Watch(self, request, context):
        self.requests.append(request)
        stream = self._pagodad.Watch(request)
        context.add_callback(stream.cancel)
        try:
            for message in stream:
                if self.breaks(message):
                    stream.cancel()
                    context.abort(grpc.StatusCode.UNAVAILABLE, "the connection broke")
                if not self.loses(message):
                    yield message
        except grpc.RpcError as error:
            context.set_trailing_metadata(error.trailing_metadata() or ())
            context.abort(error.code(), error.details())

    def __enter__(self):
        self._server.start()
        return self

    def __exit__(self, *error):
        self._server.stop(None).wait()
        self._channel.close()
