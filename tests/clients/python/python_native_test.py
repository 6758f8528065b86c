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
from pagoda._contract import read_answer, v1
from pagoda._extension import native
from pagoda.tables import Table

if native is None:
    pytest.skip("the build has no native extension, or PAGODA_NATIVE=0 turns it off", allow_module_level=True)

ROOT = pathlib.Path(__file__).resolve().parents[3]
LIMIT = 1 << 32
EDGES = [0, 1, *(value for bits in range(7, 33, 7) for value in (2 ** bits - 1, 2 ** bits)), LIMIT - 1]


class Index:
    """An integer of another type, which can do something when it is asked for its value."""

    def __init__(self, value, then=lambda: None):
        self.value, self.then = value, then

    def __index__(self):
        self.then()
        return self.value


def by_protobuf(tokens):
    return v1.AddSequenceRequest(tokens=tokens).SerializeToString()


@pytest.mark.parametrize("top", [2, 1000, 30_000, 200_000, LIMIT])
def test_tokens_are_packed_as_protobuf_packs_them(top):
    rng = random.Random(top)
    for count in (0, 1, 2, 127, 128, 1000):
        tokens = [rng.randrange(top) for _ in range(count)]
        assert native.packed(2, tokens) == by_protobuf(tokens)
    assert native.packed(2, EDGES) == by_protobuf(EDGES)
    assert native.packed(1, EDGES) == v1.MatchPrefixRequest(tokens=EDGES).SerializeToString()


@pytest.mark.parametrize("kind", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"])
def test_an_array_is_packed_like_the_list_of_its_elements(kind):
    top = min(np.iinfo(kind).max, LIMIT - 1)
    tokens = [value for value in EDGES if value <= top]
    row = np.array(tokens, kind)
    assert native.packed(2, row) == native.packed(2, row[::-1][::-1]) == by_protobuf(tokens)
    assert native.packed(2, row[::-1]) == by_protobuf(tokens[::-1])
    assert native.packed(2, row[::3]) == by_protobuf(tokens[::3])
    if np.iinfo(kind).min < 0:
        with pytest.raises(ValueError, match="token 1 is -1; a token id is from 0 to 4294967295"):
            native.packed(2, np.array([5, -1], kind))


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
def test_every_kind_of_tokens_gives_the_same_message(tokens):
    expected = [int(token) for token in (copy.copy(tokens))]
    field = _wire.TokenField(tokens, v1.AddSequenceRequest)
    assert v1.AddSequenceRequest.FromString(field.packed).tokens == expected
    assert (field.count, list(field.ids)) == (len(expected), [])


def random_answer(rng):
    """An ExecuteResponse whose every operation succeeded, on sequences."""
    made = v1.ExecuteResponse()
    number = lambda: rng.choice([0, 1, 200, 70_000, LIMIT - 1])
    made.result.revision, made.result.completed_ticket = number(), number()
    made.result.completed_fetch_ticket, made.result.completed_backup_ticket = number(), number()
    for _ in range(rng.randrange(4)):
        kind = rng.choice(["add_sequence", "reserve_tokens", "commit_tokens", "append_tokens", "free_sequence", "describe_sequence",
                           "fork_sequence", "truncate_sequence"])
        result = getattr(made.result.results.add(), kind)
        result.SetInParent()
        for field in result.DESCRIPTOR.fields:
            if field.message_type is None:
                setattr(result, field.name, number())
                continue
            for _ in range(rng.randrange(3)):
                table = getattr(result, field.name).add(window_size=number(), first_block=number())
                for _ in range(rng.randrange(4)):
                    table.blocks.add(block_id=number(), generation=number(), slot_index=number())
    return made


def check_equal(answer, message):
    """The extension's Answer says what the message says, and the message says nothing else."""
    for name in ("revision", "completed_ticket", "completed_fetch_ticket", "completed_backup_ticket"):
        assert getattr(answer, name) == getattr(message, name)
    assert not message.shortened and len(answer.results) == len(message.results)
    for mine, outcome in zip(answer.results, message.results):
        assert not outcome.HasField("error")
        result = getattr(outcome, outcome.WhichOneof("result"))
        for field in result.DESCRIPTOR.fields:
            if field.name == "matched_secondary_tokens":
                continue
            if field.message_type is None:
                assert getattr(mine, field.name) == getattr(result, field.name), field.name
                continue
            theirs = getattr(result, field.name)
            assert mine.tables == mine.added and len(mine.tables) == len(theirs)
            for table, other in zip(mine.tables, theirs):
                assert (table.window_size, table.first_block) == (other.window_size, other.first_block)
                blocks = np.frombuffer(table.handles, np.uint32).reshape(-1, 3).tolist()
                assert blocks == [[block.block_id, block.generation, block.slot_index] for block in other.blocks]


def test_an_answer_without_errors_is_read_as_protobuf_reads_it():
    rng = random.Random(1)
    for _ in range(500):
        message = random_answer(rng)
        check_equal(native.read_answer(message.SerializeToString()), message.result)
        check_equal(native.read_answer(v1.SessionResponse(result=message.result, batch_id=9).SerializeToString()), message.result)


def test_damaged_answers_are_left_to_protobuf_or_read_as_it_reads_them():
    rng = random.Random(2)
    read = 0
    for _ in range(20_000):
        raw = bytearray(random_answer(rng).SerializeToString())
        for _ in range(rng.choice([1, 1, 2, 8])):
            how = rng.randrange(3)
            if how == 0:
                del raw[rng.randrange(len(raw) + 1):]
            elif raw and how == 1:
                raw[rng.randrange(len(raw))] = rng.choice([0, 1, 2, 8, 10, 18, 0x7f, 0x80, 0xff, rng.randrange(256)])
            else:
                raw[(place := rng.randrange(len(raw) + 1)):place] = rng.randbytes(rng.randrange(4))
        if (answer := native.read_answer(bytes(raw))) is not None:
            read += 1
            check_equal(answer, v1.SessionResponse.FromString(bytes(raw)).result)
    assert read > 1000


@pytest.mark.parametrize("change", [
    lambda result: result.results.add().error.SetInParent(), lambda result: result.shortened.add(sequence_id=1),
    lambda result: result.results.add().match_prefix.SetInParent(), lambda result: result.results.add()])
def test_what_an_answer_has_no_place_for_is_left_to_protobuf(change):
    message = v1.ExecuteResponse()
    message.result.revision = 5
    change(message.result)
    assert native.read_answer(message.SerializeToString()) is None
    assert read_answer(message.SerializeToString()) == message


def test_only_bytes_are_an_answer():
    assert native.read_answer(b"") is None
    for given in ("", None, bytearray(b"\x0a\x00"), 5):
        with pytest.raises(TypeError):
            native.read_answer(given)


class Packed:
    """The same changes to a table, as protobuf and as the extension reads them."""

    def __init__(self):
        self.plain, self.fast = Table(0, 4), Table(0, 4)

    def change(self, first_block, blocks):
        message = v1.ExecuteResponse()
        table = message.result.results.add().reserve_tokens.added.add(first_block=first_block)
        for block in blocks:
            table.blocks.add(block_id=block[0], generation=block[1], slot_index=block[2])
        self.plain._take(table)
        self.fast._take(native.read_answer(message.SerializeToString()).results[0].added[0])

    def check(self):
        assert len(self.plain) == len(self.fast) and repr(self.plain) == repr(self.fast)
        assert self.plain.slots.tolist() == self.fast.slots.tolist()
        end = 4 * len(self.plain)
        assert self.plain.token_slots(0, end).tolist() == self.fast.token_slots(0, end).tolist()


@pytest.mark.parametrize("seed", range(20))
def test_a_table_is_the_same_from_protobuf_and_from_the_extension(seed):
    rng = random.Random(seed)
    tables = Packed()
    passed = (LIMIT - 1, 0, LIMIT - 1)
    for _ in range(30):
        first = rng.randrange(len(tables.plain) + 1)
        blocks = [passed if rng.random() < 0.1 else tuple(rng.randrange(1, 1000) for _ in range(3)) for _ in range(rng.randrange(4))]
        if rng.random() < 0.3:  # As append_step does.
            for table in (tables.plain, tables.fast):
                table._put_blocks(first, (pagoda.Block.of(*block) for block in blocks))
        else:
            tables.change(first, blocks)
        if rng.random() < 0.5:
            tables.check()
        if rng.random() < 0.1:
            assert tables.plain.blocks == tables.fast.blocks
    tables.check()
    assert tables.plain.blocks == tables.fast.blocks


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
         sequences.commit(view, [1, 2]), sequences.append_step([view], [5]), operations.match(np.arange(9), namespace=space),
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
    assert output.split() == [f"{tmp_path}/unpacked/pagoda/_native.abi3.so", "1202ac02"]
    assert {"packed", "read_answer", "Ring"} <= set(dir(native))
