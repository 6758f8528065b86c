"""TCP proxies in this process: a test can cut the connections of one, another is slow, and one
loses replies."""

import contextlib
import random
import socket
import threading
import time


class TcpProxy:
    """Forwards connections at `address` to a target "host:port"."""

    def __init__(self, target):
        host, port = target.rsplit(":", 1)
        self._target = (host, int(port))
        self._lock = threading.Lock()
        self._pairs = []
        self.accepted = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def retarget(self, target):
        """Connections from now on go to another target."""
        host, port = target.rsplit(":", 1)
        self._target = (host, int(port))

    def cut(self):
        """Ends every connection there is, without a word from either side's application."""
        with self._lock:
            pairs, self._pairs = self._pairs, []
        for near, far in pairs:
            _shut(near)
            _shut(far)
        return len(pairs)

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                try:
                    far = socket.create_connection(self._target)
                except OSError:  # Nothing listens at the target now.
                    near.close()
                    continue
                for end in (near, far):  # Forward small packets without delay.
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                with self._lock:
                    self._pairs.append((near, far))
                    self.accepted += 1
                for way, source, sink in ((_forward, near, far), (self._deliver, far, near)):
                    threading.Thread(target=way, args=(source, sink), daemon=True).start()

    def _deliver(self, source, sink):
        """What the target sends, to the client."""
        _forward(source, sink)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        _shut(self._listener)
        self._listener.close()
        self.cut()


def _forward(source, sink):
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            sink.sendall(data)
    _shut(source)
    _shut(sink)


def _shut(end):
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)


class SlowProxy(TcpProxy):
    """What the target sends comes late and in pieces, as over a bad line."""

    PIECE_BYTES = 4096
    MOST_DELAY_SECONDS = 0.01

    def __init__(self, target, seed):
        self._rng = random.Random(seed)
        super().__init__(target)

    def _deliver(self, source, sink):
        with contextlib.suppress(OSError):
            while data := source.recv(self.PIECE_BYTES):
                time.sleep(self._rng.uniform(0, self.MOST_DELAY_SECONDS))
                sink.sendall(data)
        _shut(source)
        _shut(sink)


class ReplyLosingProxy(TcpProxy):
    """Loses a share of gRPC's replies. The request reaches the target, which runs and answers it.
    Instead of the answer, the client's connection ends, together with its other calls on that
    connection."""

    def __init__(self, target, seed):
        self.loss = 0.0  # The share of the next replies that is lost.
        self.replies = 0
        self.lost = 0
        self._rng = random.Random(seed)
        super().__init__(target)

    def _deliver(self, source, sink):
        """HTTP/2 frame for frame: a reply begins with the first HEADERS frame of its stream."""
        begun = set()
        with contextlib.suppress(OSError), source.makefile("rb") as frames:
            while len(header := frames.read(_FRAME_HEADER_BYTES)) == _FRAME_HEADER_BYTES:
                payload = frames.read(int.from_bytes(header[:3], "big"))
                stream = int.from_bytes(header[5:], "big")
                if header[3] == _HEADERS and stream not in begun:
                    begun.add(stream)
                    if self._is_lost():
                        break
                sink.sendall(header + payload)
        _shut(source)
        _shut(sink)

    def _is_lost(self):
        with self._lock:
            self.replies += 1
            lost = self._rng.random() < self.loss
            self.lost += lost
        return lost


# A header of an HTTP/2 frame has a length (3 bytes), a type (1), flags (1) and a stream (4).
_FRAME_HEADER_BYTES = 9
_HEADERS = 1
