"""XXH3 in its 64-bit form with a seed, in plain Python, for machines without the package xxhash.
The constants are those of the specification.

Source: the xxHash project, xxhash.h 0.8 (Yann Collet). A block of 16 tokens takes a few
microseconds.
"""

import struct

_ONES = (1 << 64) - 1
_PRIME32 = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D)
_PRIME64 = (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)
_SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
    "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364"
    "eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e")
_STRIPE = 64
_STRIPES_PER_BLOCK = (len(_SECRET) - _STRIPE) // 8


def _u32(data: bytes, at: int) -> int:
    return int.from_bytes(data[at:at + 4], "little")


def _u64(data: bytes, at: int) -> int:
    return int.from_bytes(data[at:at + 8], "little")


def _fold(one: int, other: int) -> int:
    product = one * other
    return (product ^ product >> 64) & _ONES


def _avalanche(value: int) -> int:
    value &= _ONES
    value = (value ^ value >> 37) * 0x165667919E3779F9 & _ONES
    return value ^ value >> 32


def _avalanche_of_xxh64(value: int) -> int:
    value &= _ONES
    value = (value ^ value >> 33) * _PRIME64[1] & _ONES
    value = (value ^ value >> 29) * _PRIME64[2] & _ONES
    return value ^ value >> 32


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> 64 - bits) & _ONES


def _up_to_16(data: bytes, seed: int) -> int:
    size = len(data)
    if size > 8:
        low = _u64(data, 0) ^ (_u64(_SECRET, 24) ^ _u64(_SECRET, 32)) + seed & _ONES
        high = _u64(data, size - 8) ^ (_u64(_SECRET, 40) ^ _u64(_SECRET, 48)) - seed & _ONES
        return _avalanche(size + int.from_bytes(low.to_bytes(8, "little"), "big") + high + _fold(low, high))
    if size > 3:
        seed ^= int.from_bytes((seed & 0xFFFFFFFF).to_bytes(4, "little"), "big") << 32
        value = (_u32(data, size - 4) + (_u32(data, 0) << 32)) ^ (_u64(_SECRET, 8) ^ _u64(_SECRET, 16)) - seed & _ONES
        value = (value ^ _rotated(value, 49) ^ _rotated(value, 24)) * 0x9FB21C651E98DF25 & _ONES
        value = (value ^ (value >> 35) + size) * 0x9FB21C651E98DF25 & _ONES
        return value ^ value >> 28
    if size:
        value = data[0] << 16 | data[size >> 1] << 24 | data[-1] | size << 8
        return _avalanche_of_xxh64(value ^ (_u32(_SECRET, 0) ^ _u32(_SECRET, 4)) + seed)
    return _avalanche_of_xxh64(seed ^ _u64(_SECRET, 56) ^ _u64(_SECRET, 64))


def _mixed(data: bytes, at: int, secret_at: int, seed: int) -> int:
    return _fold(_u64(data, at) ^ _u64(_SECRET, secret_at) + seed & _ONES, _u64(data, at + 8) ^ _u64(_SECRET, secret_at + 8) - seed & _ONES)


def _up_to_240(data: bytes, seed: int) -> int:
    size = len(data)
    sum_ = size * _PRIME64[0]
    if size <= 128:
        for pair in range((size - 1) // 32 + 1):
            sum_ += _mixed(data, 16 * pair, 32 * pair, seed) + _mixed(data, size - 16 * (pair + 1), 32 * pair + 16, seed)
        return _avalanche(sum_)
    sum_ = _avalanche(sum_ + sum(_mixed(data, 16 * i, 16 * i, seed) for i in range(8)))
    sum_ += sum(_mixed(data, 16 * i, 16 * (i - 8) + 3, seed) for i in range(8, size // 16))
    return _avalanche(sum_ + _mixed(data, size - 16, 136 - 17, seed))


def _accumulate(sums: list[int], data: bytes, at: int, secret: bytes, secret_at: int) -> None:
    values = struct.unpack_from("<8Q", data, at)
    keys = struct.unpack_from("<8Q", secret, secret_at)
    for i in range(8):
        keyed = values[i] ^ keys[i]
        sums[i ^ 1] += values[i]
        sums[i] += (keyed & 0xFFFFFFFF) * (keyed >> 32)


def _long(data: bytes, seed: int) -> int:
    secret = b"".join(struct.pack("<2Q", _u64(_SECRET, at) + seed & _ONES, _u64(_SECRET, at + 8) - seed & _ONES) for at in range(0, 192, 16))
    sums = [_PRIME32[2], *_PRIME64[:4], _PRIME32[1], _PRIME64[4], _PRIME32[0]]
    for stripe in range((len(data) - 1) // _STRIPE):
        _accumulate(sums, data, stripe * _STRIPE, secret, stripe % _STRIPES_PER_BLOCK * 8)
        if stripe % _STRIPES_PER_BLOCK == _STRIPES_PER_BLOCK - 1:
            sums = [(value & _ONES ^ (value & _ONES) >> 47 ^ _u64(secret, 128 + 8 * i)) * _PRIME32[0] & _ONES for i, value in enumerate(sums)]
    _accumulate(sums, data, len(data) - _STRIPE, secret, len(secret) - _STRIPE - 7)
    sums = [value & _ONES for value in sums]
    merged = sum(_fold(sums[i] ^ _u64(secret, 11 + 8 * i), sums[i + 1] ^ _u64(secret, 19 + 8 * i)) for i in range(0, 8, 2))
    return _avalanche(len(data) * _PRIME64[0] + merged)


def xxh3_64_intdigest(data: bytes, seed: int = 0) -> int:
    """Like the function of that name in the package xxhash."""
    return (_up_to_16 if len(data) <= 16 else _up_to_240 if len(data) <= 240 else _long)(data, seed)
