"""Ports for servers that cannot choose one themselves."""

import random
import socket

# Below the ports that the kernel gives to clients, so no client that connects meanwhile takes it.
PORTS = range(10_000, 32_000)


def free_port(host="127.0.0.1"):
    """A port that nothing listens on now."""
    for port in random.SystemRandom().sample(PORTS, 1000):
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as one:
            try:
                one.bind((host, port))
            except OSError:
                continue
            return port
    raise AssertionError("1,000 ports are taken")
