"""The native extension of the Python package, compared with protobuf and with the package's plain
Python."""

import array
import copy
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys

import numpy as np
import pagoda
import pytest
from pagoda import _wire, values
from pagoda._contract import v1
from pagoda._extension import native

if native is None:
    pytest.skip("the build has no native extension, or PAGODA_NATIVE=0 turns it off", allow_module_level=True)

ROOT = pathlib.Path(__file__).resolve().parents[3]
LIMIT = 1 << 32
EDGES = [0, 1, *(value for bits in range(7, 33, 7) for value in (2 ** bits - 1, 2 ** bits)), LIMIT - 1]
# The extension's, and the package's without it.
PACKERS = [native.packed, _wire._packed]


class Index:
    """An integer of another type, which can do something when it is asked for its value."""

    def __init__(self, value, then=lambda: None):
        self.value, self.then = value, then

    def __index__(self):
        self.then()
        return self.value


def by_protobuf(tokens):
    return v1.AddSequenceRequest(tokens=tokens).SerializeToString()


@pytest.mark.parametrize("packed", PACKERS)
def test_tokens_are_packed_as_protobuf_packs_them(packed):
    rng = random.Random(1)
    for count in (1, 2, 31, 32, 1000, 4095, 4096, 10_000):  # The length of the field takes 1 to 3 bytes.
        tokens = [rng.randrange(LIMIT) for _ in range(count)]
        assert packed(2, tokens) == packed(2, np.array(tokens, np.uint32)) == by_protobuf(tokens)
    assert packed(2, EDGES) == by_protobuf(EDGES)
    assert packed(1, EDGES) == v1.MatchPrefixRequest(tokens=EDGES).SerializeToString()


def test_a_field_without_tokens_is_empty():
    for nothing in ([], np.array([], np.uint32), np.array([], np.int64)):
        assert native.packed(2, nothing) == _wire.TokenField(nothing, v1.AddSequenceRequest).packed == by_protobuf([]) == b""


@pytest.mark.parametrize("number", [1, 15, 16, 2047, 2048, (1 << 29) - 1])
def test_a_fields_number_takes_as_many_bytes_as_it_needs(number):
    assert native.packed(number, EDGES) == _wire._packed(number, EDGES)


@pytest.mark.parametrize("kind", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"])
@pytest.mark.parametrize("packed", PACKERS)
def test_an_array_is_packed_like_the_list_of_its_elements(kind, packed):
    top = min(np.iinfo(kind).max, LIMIT - 1)
    tokens = [value for value in EDGES if value <= top]
    row = np.array(tokens, kind)
    assert packed(2, row) == packed(2, row[::-1][::-1]) == by_protobuf(tokens)
    assert packed(2, row[::-1]) == by_protobuf(tokens[::-1])
    assert packed(2, row[::3]) == by_protobuf(tokens[::3])
    if np.iinfo(kind).min < 0:
        with pytest.raises(ValueError, match="token 1 is -1; a token id is from 0 to 4294967295"):
            packed(2, np.array([5, -1], kind))
    if np.iinfo(kind).max >= LIMIT:
        with pytest.raises(ValueError, match="token 1 is 4294967296; a token id is from 0 to 4294967295"):
            packed(2, np.array([5, LIMIT], kind))


@pytest.mark.parametrize("bad, error", [
    ([-1], ValueError), ([LIMIT], ValueError), ([1 << 80], ValueError), ([1.0], TypeError), (["1"], TypeError), ([None], TypeError),
    ([True], TypeError), ([Index(-1)], ValueError), ([Index("no")], TypeError), (7, TypeError), ("text", TypeError), (None, TypeError),
    (np.array([1.0]), TypeError), (np.zeros((2, 2), int), TypeError), (np.array(5), TypeError), (np.array([LIMIT]), ValueError),
    (np.array([1], ">i4"), TypeError), (np.array(["a"]), TypeError), (np.array([True]), TypeError)])
def test_what_is_no_row_of_tokens_is_refused(bad, error):
    with pytest.raises(error):
        native.packed(2, bad)


@pytest.mark.parametrize("bad", [-1, LIMIT, 1 << 80, True, 1.0, "1", None, Index(-1)])
def test_the_extension_refuses_a_token_with_the_words_of_plain_python(bad):
    with pytest.raises((TypeError, ValueError)) as plain:
        values.token_list([5, 6, bad])
    with pytest.raises(type(plain.value)) as packed:
        native.packed(2, [5, 6, bad])
    assert str(packed.value) == str(plain.value) and str(packed.value).startswith("token 2 is ")


@pytest.mark.parametrize("number", [0, 1 << 29, -1, 1 << 40, "2"])
def test_what_is_no_field_number_is_refused(number):
    with pytest.raises((ValueError, OverflowError, TypeError)):
        native.packed(number, [1])
    with pytest.raises(TypeError):
        native.packed(2)


def test_a_list_that_shrinks_meanwhile_is_an_error_and_one_that_grows_is_not():
    tokens = [1, 2]
    tokens[1:1] = [Index(7, tokens.clear), Index(8)]
    with pytest.raises(IndexError):
        native.packed(2, tokens)
    tokens = [Index(7, lambda: tokens.append(9)), 3]
    assert native.packed(2, tokens) == by_protobuf([7, 3])


@pytest.mark.parametrize("tokens", [[1, 2, 300], (1, 2, 300), range(3), array.array("q", [1, 2, 300]), array.array("B", b"abc"), np.arange(5),
                                    np.arange(5, dtype=">u4"), iter([4, 5]), [np.int64(4), 1, Index(9)], []])
def test_every_kind_of_tokens_gives_the_same_message(tokens, monkeypatch):
    expected = [int(token) for token in copy.copy(tokens)]
    for packed in PACKERS:
        monkeypatch.setattr(_wire, "_pack", packed)
        field = _wire.TokenField(copy.copy(tokens), v1.AddSequenceRequest)
        assert v1.AddSequenceRequest.FromString(field.packed).tokens == expected
        assert field.count == len(expected)


# Prints the requests that a session makes, as text.
REQUESTS = """
import json, sys
import numpy as np
from pagoda import _extension, _operations as operations, _sequences as sequences, values
from pagoda._call import Pending
from pagoda._contract import v1
from pagoda._sequences import SequenceView
from pagoda._session import Session

opened = v1.OpenSessionResponse(session={"session_id": 5, "token": 1 << 60, "token_high": 7})
opened.cache.tokens_per_block = 4
opened.cache.windows.add()
session, view = Session(opened), SequenceView(1, 4)
view._open = sequences._Open(0, 0, 0, 0, {})
space = values.Namespace(cache_salt="salt")
calls = [sequences.open_sequence(view, range(300), reserved_tokens=999, namespace=space, whole_blocks_only=True),
         sequences.open_sequence(view, keys=[b"a", b"b"]), sequences.append(view, 70_000, computed=3), sequences.append(view, np.arange(5)),
         sequences.commit(view, [1, 2]), sequences.append_step([view], [5]),
         sequences.append_step([view, view], [[5, 6], range(3)], computed=[7, None]), operations.pin(range(3)), operations.offload([8]),
         operations.invalidate([]), operations.set_retention([4], [values.Retention(9)]), operations.match(np.arange(9), namespace=space),
         operations.query_capacity([1], max_new_tokens=5), operations.prefetch([3, 4], deadline=1), operations.pin([4]),
         operations.allocate_blocks(3), sequences.free(view)]
pending = [Pending(call) for call in calls]
print(json.dumps([_extension.native is not None, str(session.request(pending, step=300, completed_step=299).batch),
                  str(session.request(pending[:1]).batch), str(session.request([]).batch)]))
"""


def test_the_requests_are_the_same_without_the_extension():
    def requests(**environment):
        return json.loads(subprocess.run([sys.executable, "-c", REQUESTS], env=os.environ | environment, check=True, capture_output=True).stdout)

    (has, *made), (has_none, *plain) = requests(PAGODA_NATIVE="auto"), requests(PAGODA_NATIVE="0")
    assert (has, has_none) == (True, False)
    assert made == plain and "tokens: 299" in made[0] and "completed_step: 299" in made[0] and "retry_id: 2" in made[1]


def test_a_batch_request_is_the_message_of_its_parts():
    session = v1.SessionRef(session_id=7, token=1 << 63, token_high=9)
    operations = [_wire.operation("free_sequence", v1.FreeSequenceRequest(sequence_id=number)) for number in range(200)]
    for step, completed, retry in ((0, 0, 0), (5, 4, 1), (1 << 63, 300, (1 << 64) - 1)):
        made = _wire.BatchRequest(_wire.session_field(session), operations, step=step, completed_step=completed, retry_id=retry)
        expected = v1.ExecuteRequest(session=session, batch={"step": step, "completed_step": completed, "retry_id": retry})
        for number in range(200):
            expected.batch.operations.add().free_sequence.sequence_id = number
        assert v1.ExecuteRequest.FromString(made.SerializeToString()) == expected
        assert v1.SessionRequest.FromString(made.SerializeToString()).batch == expected.batch == made.batch


def test_a_ring_needs_the_memory_of_a_ring(tmp_path):
    read, write = os.pipe()
    memory = os.memfd_create("rings", os.MFD_ALLOW_SEALING)
    os.truncate(memory, 4096 + 2 * 4096)
    try:
        for arguments, error in (((memory, read, 2, 4096), "not sealed"), ((memory, read, 2, 8192), "another size"),
                                 ((memory, read, 2, 5000), "cannot have 5000 bytes"), ((memory, read, 3, 4096), "version 3"),
                                 ((memory, read, 1, 4096), "version 1"), ((read, read, 2, 4096), "another size")):
            with pytest.raises(ValueError, match=error):
                native.Ring(*arguments)
        for arguments in ((-1, read, 2, 4096), (memory, 10_000, 2, 4096)):
            with pytest.raises(OSError):
                native.Ring(*arguments)
        for arguments in ((), (1,), ("a", 1, 1, 1), (memory, read, 2, 1 << 40)):
            with pytest.raises((TypeError, OverflowError, ValueError)):
                native.Ring(*arguments)
        with pytest.raises(TypeError):
            native.Ring(memory, read, 2, bytes=4096)
        os.fstat(memory)  # The descriptors are still the caller's.
        os.fstat(read)
    finally:
        for descriptor in (read, write, memory):
            os.close(descriptor)


# The extension is compiled without optimisation, because that takes less time.
BUILD = "import sys; sys.path.insert(0, 'build_backend'); import backend; print(getattr(backend, sys.argv[1])(sys.argv[2]))"


def test_a_wheel_from_the_repository_or_from_a_source_distribution_has_the_extension(tmp_path):
    pytest.importorskip("setuptools")
    pytest.importorskip("wheel")
    there = tmp_path / "there"
    for folder in ("clients/python", "proto", "wire/ring"):
        shutil.copytree(ROOT / folder, there / folder, ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__", ".mypy_cache"))
    (there / "base").mkdir()
    shutil.copyfile(ROOT / "base/file_descriptor.h", there / "base/file_descriptor.h")

    def build(call, source, **environment):
        output = subprocess.run([sys.executable, "-c", BUILD, call, str(tmp_path)], cwd=source, check=True, capture_output=True, text=True,
                                env=os.environ | {"CFLAGS": "-O0"} | environment).stdout
        return tmp_path / output.splitlines()[-1]

    shutil.unpack_archive(build("build_sdist", there / "clients/python"), tmp_path / "far")
    (source,) = (tmp_path / "far").iterdir()
    assert build("build_wheel", source, PAGODA_NATIVE="0").name.endswith("-py3-none-any.whl")
    wheel = build("build_wheel", source, PAGODA_NATIVE="1")
    assert re.fullmatch(rf"pagoda-{pagoda.__version__}-cp311-abi3-(many)?linux_(2_\d+_)?\w+\.whl", wheel.name)
    shutil.unpack_archive(wheel, tmp_path / "unpacked", "zip")
    program = "import pagoda._native as native; print(native.__file__, native.packed(2, [300]).hex())"
    output = subprocess.run([sys.executable, "-c", program], env=os.environ | {"PYTHONPATH": str(tmp_path / "unpacked")}, check=True,
                            capture_output=True, text=True).stdout
    assert output.split() == [f"{tmp_path}/unpacked/pagoda/_native.abi3.so", "12042c010000"]
    assert {"packed", "Ring"} <= set(dir(native))
