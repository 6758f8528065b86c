"""A TCP proxy in this process, whose connections a test can cut."""

import contextlib
import socket
import threading


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
                except OSError:  # Nobody there now.
                    near.close()
                    continue
                with self._lock:
                    self._pairs.append((near, far))
                    self.accepted += 1
                for source, sink in ((near, far), (far, near)):
                    threading.Thread(target=_forward, args=(source, sink), daemon=True).start()

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
