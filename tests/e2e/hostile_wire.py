"""Hand-made HTTP/2 frames that a hostile or broken client sends to the gRPC port."""

import random
import socket
import struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, END_HEADERS, ACK = 0x1, 0x4, 0x1
CANCEL = 8
INITIAL_WINDOW_SIZE = 4
NO_WINDOW = struct.pack(">HI", INITIAL_WINDOW_SIZE, 0)
HEALTH = "/grpc.health.v1.Health/Check"
SEND_SECONDS = 10


def frame(kind, flags=0, stream=0, payload=b""):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def header(name, value):
    """A literal field of HPACK, not indexed, without Huffman coding; both below 127 bytes."""
    return b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()


def call_headers(path):
    fields = {":method": "POST", ":scheme": "http", ":path": path, ":authority": "localhost",
              "te": "trailers", "content-type": "application/grpc"}
    return b"".join(header(name, value) for name, value in fields.items())


def message(payload):
    """A gRPC message: not compressed, its length, its bytes."""
    return b"\0" + struct.pack(">I", len(payload)) + payload


def conversation(path, payload, stream=1):
    """The frames of a good call, one by one."""
    return [PREFACE, frame(SETTINGS), frame(HEADERS, END_HEADERS, stream, call_headers(path)),
            frame(DATA, END_STREAM, stream, message(payload))]


def calls(path, streams, whole=True, token=None):
    """Many calls of one method. If not `whole`, their messages never come."""
    block = call_headers(path) + (header("authorization", f"Bearer {token}") if token else b"")
    for stream in range(1, 2 * streams, 2):
        yield frame(HEADERS, END_HEADERS, stream, block) + (frame(DATA, END_STREAM, stream, message(b"")) if whole else b"")


def greet(connection, acknowledge):
    """The beginning of a connection whose window is 0."""
    connection.sendall(PREFACE + frame(SETTINGS, 0, 0, NO_WINDOW))
    seen = b""
    while acknowledge and frame(SETTINGS, ACK) not in seen:
        if not (piece := connection.recv(65536)):
            raise ConnectionError("the daemon has ended the connection")
        seen += piece
    if acknowledge:
        connection.sendall(frame(SETTINGS, ACK))


class Attacker:
    """Opens connections and sends random variations of good calls. Remembers the connections that
    it keeps open."""

    def __init__(self, unix_socket, tcp_address, calls, seed):
        self.unix_socket = str(unix_socket)
        host, port = tcp_address.rsplit(":", 1)
        self.tcp_address = (host, int(port))
        self.calls = calls  # (path, bytes of a good request).
        self.random = random.Random(seed)
        self.open = []

    def connect(self):
        if self.random.random() < 0.5:
            connection = socket.create_connection(self.tcp_address, SEND_SECONDS)
        else:
            connection = socket.socket(socket.AF_UNIX)
            connection.settimeout(SEND_SECONDS)
            connection.connect(self.unix_socket)
        return connection

    def send(self, data):
        """Sends on a new connection, which it closes at once, with or without reading the
        answer."""
        with self.connect() as connection:
            try:
                connection.sendall(data)
                if self.random.random() < 0.3:
                    connection.settimeout(0.05)
                    while connection.recv(65536):
                        pass
            except OSError:
                pass  # The daemon has closed the connection or sends no more.

    def hold(self, data):
        """On a connection that stays open."""
        connection = self.connect()
        connection.sendall(data)
        self.open.append(connection)

    def release(self):
        for connection in self.open:
            connection.close()
        self.open = []

    # --- The attacks ---

    def garbage(self):
        return self.random.randbytes(self.random.randrange(1, 2000))

    def garbage_frames(self):
        """Frames that are whole, of any kind and content."""
        frames = [PREFACE, frame(SETTINGS)]
        for _ in range(self.random.randrange(1, 20)):
            kind = self.random.choice([*range(10), self.random.randrange(256)])
            stream = self.random.choice([0, 1, 3, 2, 2**31 - 1, self.random.randrange(2**32)])
            frames.append(frame(kind, self.random.randrange(256), stream, self.random.randbytes(self.random.randrange(64))))
        return b"".join(frames)

    def mutated_call(self):
        """A good call with frames left out, repeated or reordered, with bytes changed, or cut
        short."""
        path, payload = self.random.choice(self.calls)
        frames = conversation(path, payload)
        for _ in range(self.random.randrange(3)):
            at = self.random.randrange(1, len(frames))
            how = self.random.randrange(3)
            if how == 0:
                del frames[at]
            elif how == 1:
                frames.insert(at, frames[at])
            else:
                other = self.random.randrange(1, len(frames))
                frames[at], frames[other] = frames[other], frames[at]
            if len(frames) == 1:
                break
        data = bytearray(b"".join(frames))
        for _ in range(self.random.choice([0, 1, 1, 2, 5])):
            data[self.random.randrange(len(PREFACE), len(data)) if len(data) > len(PREFACE) else 0] = self.random.randrange(256)
        if self.random.random() < 0.2:
            del data[self.random.randrange(len(data)):]
        return bytes(data)

    def mutated_message(self):
        """Good frames around a message that is none, or says another length than it has."""
        path, payload = self.random.choice(self.calls)
        data = bytearray(payload or b"\0")
        for _ in range(self.random.randrange(1, 6)):
            data[self.random.randrange(len(data))] = self.random.randrange(256)
        body = bytearray(message(bytes(data)))
        if self.random.random() < 0.3:
            body[self.random.randrange(5)] = self.random.randrange(256)
        return b"".join([*conversation(path, payload)[:3], frame(DATA, END_STREAM, 1, bytes(body))])

    def reset_flood(self, streams):
        """Calls that are begun and taken back at once."""
        path, _ = self.random.choice(self.calls)
        frames = [PREFACE, frame(SETTINGS)]
        for stream in range(1, 2 * streams, 2):
            frames.append(frame(HEADERS, END_HEADERS, stream, call_headers(path)))
            frames.append(frame(RST_STREAM, 0, stream, struct.pack(">I", CANCEL)))
        return b"".join(frames)

    def ping_flood(self, pings):
        return PREFACE + frame(SETTINGS) + frame(PING, 0, 0, b"12345678") * pings

    def settings_flood(self, settings):
        return PREFACE + frame(SETTINGS, 0, 0, struct.pack(">HI", 3, 100)) * settings

    def continuation_flood(self, frames):
        """Headers that never end."""
        path, _ = self.calls[0]
        return b"".join([PREFACE, frame(SETTINGS), frame(HEADERS, 0, 1, call_headers(path)),
                         *[frame(CONTINUATION, 0, 1, header("x" * 100, "y" * 100)) for _ in range(frames)]])

    def half_open(self):
        """The beginning of a call; its end never comes."""
        path, payload = self.random.choice(self.calls)
        frames = b"".join(conversation(path, payload))
        return frames[:self.random.randrange(1, len(frames))]
