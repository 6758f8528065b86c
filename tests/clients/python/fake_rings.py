"""A daemon's side of rings in plain Python: a map socket that hands out pairs, and what the daemon
writes into them. It can also write what no daemon writes. wire/ring/ring_layout.h describes the
memory."""

import fcntl
import mmap
import os
import select
import socket
import threading

from pagoda._contract import rpc, v1

CONTROL = 4096
SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
VERSION = 2
REQUEST, ANSWER, ANSWER_TOO_LARGE, REFUSAL = 1, 2, 3, 4
# Places in the memory, in bytes.
REQUESTS_WRITTEN, REQUESTS_READ, REQUESTS_WAITING = 64, 128, 136
ANSWERS_WRITTEN, ANSWERS_READ, ANSWERS_WAITING, ENDING = 192, 256, 264, 320


class Pair:
    """A pair of rings. `answer(pair, request)` is called with each SessionRequest, in a thread of
    the pair; it writes what it wants."""

    def __init__(self, size, answer, *, seals=SEALS):
        self.size = size
        self.memory = os.memfd_create("rings", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
        os.truncate(self.memory, CONTROL + 2 * size)
        fcntl.fcntl(self.memory, fcntl.F_ADD_SEALS, seals)
        self.wake, self.client_wake = socket.socketpair()
        self._map = mmap.mmap(self.memory, CONTROL + 2 * size)
        self._bytes, self.words, self.halves = memoryview(self._map), memoryview(self._map).cast("Q"), memoryview(self._map).cast("I")
        self.halves[0], self.halves[1] = VERSION, size
        self._answer = answer
        self._read = self._written = 0
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self):
        """Reads requests until the client or the daemon has closed its end."""
        while True:
            if self.words[REQUESTS_WRITTEN // 8] != self._read:
                self._answer(self, v1.SessionRequest.FromString(self._take()))
                continue
            self.halves[REQUESTS_WAITING // 4] = 1
            if self.words[REQUESTS_WRITTEN // 8] == self._read:
                try:
                    select.select([self.wake], [], [])
                    if not self.wake.recv(4096):
                        return
                except (OSError, ValueError):
                    return
            self.halves[REQUESTS_WAITING // 4] = 0

    def _at(self, position, count):
        """The bytes of the ring of requests from a position on."""
        index = position % self.size
        first = min(count, self.size - index)
        return bytes(self._bytes[CONTROL + index:CONTROL + index + first]) + bytes(self._bytes[CONTROL:CONTROL + count - first])

    def _take(self):
        header = self._at(self._read, 8)
        size, kind = int.from_bytes(header[:4], "little"), int.from_bytes(header[4:], "little")
        assert kind == REQUEST and size <= self.size
        message = self._at(self._read + 8, size)
        self._read += 8 + (size + 7) // 8 * 8
        self.words[REQUESTS_READ // 8] = self._read
        return message

    def write(self, kind, message=b"", *, size=None):
        """Writes an answer. `size`: what its header says; default: the truth."""
        self.prepare(kind, message, size=size)
        self.publish(self._written)

    def prepare(self, kind, message=b"", *, size=None):
        """Writes an answer that the client does not see yet."""
        data = (len(message) if size is None else size).to_bytes(4, "little") + kind.to_bytes(4, "little") + message
        for offset, byte in enumerate(data):
            self._bytes[CONTROL + self.size + (self._written + offset) % self.size] = byte
        self._written += 8 + (len(message) + 7) // 8 * 8

    def publish(self, position):
        """Everything before the position counts as written."""
        self.words[ANSWERS_WRITTEN // 8] = position
        if self.halves[ANSWERS_WAITING // 4]:
            self.wake.send(b"!")

    def refuse(self, code, message):
        """Refuses the batch as a whole."""
        self.write(REFUSAL, rpc.Status(code=code, message=message).SerializeToString())

    def reply(self, result):
        """Writes a BatchResult."""
        self.write(ANSWER, v1.SessionResponse(result=result).SerializeToString())

    def end(self, reason=b""):
        """Ends the pair like the daemon."""
        start = ENDING + 4
        self._bytes[start:start + len(reason)] = reason
        self.halves[ENDING // 4] = 1 + len(reason)
        self.wake.shutdown(socket.SHUT_RDWR)

    def vanish(self):
        """Ends the pair like the kernel after the daemon was killed."""
        self.wake.shutdown(socket.SHUT_RDWR)
        self.wake.close()


class MapSocket:
    """A map socket. Each request for rings gets the next pair of `make_pair()`; an exception's text
    becomes an error. `version` is what it says of the pairs. `garbage`: what it says instead."""

    def __init__(self, path, make_pair):
        self.path, self.asked, self.pairs, self.version, self.garbage = str(path), [], [], VERSION, None
        self._make_pair = make_pair
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.bind(self.path)
        self._socket.listen()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self):
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection:
                self._serve(connection)

    def _serve(self, connection):
        request = v1.MapPoolsRequest.FromString(connection.recv(1024))
        self.asked.append(request)
        response, descriptors = v1.MapPoolsResponse(), []
        try:
            pair = self._make_pair()
            self.pairs.append(pair)
            response.rings.version, response.rings.bytes = self.version, pair.size
            descriptors = [pair.memory, pair.client_wake.fileno()]
        except ValueError as error:
            response.error.code, response.error.message = 12, str(error)
        try:
            socket.send_fds(connection, [self.garbage or response.SerializeToString()], descriptors)
        except OSError:
            pass  # The client has not waited.
        if descriptors:
            pair.client_wake.close()

    def close(self):
        """A second call does nothing."""
        if self._socket.fileno() >= 0:
            self._socket.shutdown(socket.SHUT_RDWR)
            self._socket.close()
