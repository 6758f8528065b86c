"""What the Python package takes as tokens, and how its enums print."""

import pagoda
import pytest
from pagoda import _exchange, _operations, _sequences, hashes, values


@pytest.mark.parametrize("row", ["123", b"abc", bytearray(b"abc"), {1, 2}, frozenset({1}), {1: 2}])
def test_text_and_what_has_no_order_are_no_tokens(row):
    for refuse in (lambda: _operations.match(row), lambda: _exchange.fetch_prefix(row), lambda: hashes.block_hashes(row, 4),
                   lambda: _sequences.append(_sequences.SequenceView(1, 4), row), lambda: _operations.match([1], extra_token_ids=row)):
        with pytest.raises(TypeError, match="tokens must be a row of token ids"):
            refuse()


@pytest.mark.parametrize("bad, error", [(-1, ValueError), (1 << 32, ValueError), (True, TypeError), (1.0, TypeError), ("7", TypeError)])
def test_a_bad_token_is_named_by_its_index(bad, error):
    row, one = [5, 6, bad], _sequences.SequenceView(1, 4)
    for refuse in (lambda: _operations.match(row), lambda: _exchange.fetch_prefix(row), lambda: hashes.block_hashes(row, 4),
                   lambda: _sequences.append(one, iter(row)), lambda: _sequences.append_step([one, one], [5, row])):
        with pytest.raises(error, match="token 2 is .*"):
            refuse()
    with pytest.raises(error, match="sequence 1: token 0 is"):
        _sequences.append_step([one, one], [5, [bad]])
    if not isinstance(bad, str):
        with pytest.raises(error, match="token 0 is"):
            _sequences.append(one, bad)


def test_an_extra_id_has_64_bits():
    assert values.extra_id_list([2**64 - 1]) == [2**64 - 1]
    with pytest.raises(ValueError, match="token 0 is 18446744073709551616"):
        _operations.match([1], extra_token_ids=[2**64])


def test_an_enum_is_printed_with_its_name():
    assert f"{pagoda.Tier.PRIMARY} {pagoda.FetchOutcome(5)!s} {pagoda.Tier(7)}" == "Tier.PRIMARY FetchOutcome.FAILED Tier.UNKNOWN_7"
    assert int(pagoda.Tier.PRIMARY) == 1 and f"{pagoda.Tier.PRIMARY:}" == "Tier.PRIMARY"
