"""Reads the stamps of a cache that outlives its daemon (manager/restart/slot_stamps.h)."""


def count_valid(path):
    """The valid stamps in a file of stamps: the lowest bit of each stamp's first word."""
    memory = path.read_bytes()
    slots, stride = int.from_bytes(memory[20:24], "little"), int.from_bytes(memory[24:32], "little")
    return sum(memory[4096 + slot * stride] & 1 for slot in range(slots))
