"""A sequence as its client knows it, and the operations on it. Each function here is a method of
Sequence and of aio.Sequence. It is also a method of the batches, which take the sequence as first
argument."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, SupportsIndex

from pagoda import values
from pagoda._call import Call, Surroundings
from pagoda._contract import v1
from pagoda._operations import take_capacity
from pagoda._rows import rows
from pagoda._wire import TokenField, number_field
from pagoda.errors import Details, KvLost, Loss, PagodaError, make, of_result
from pagoda.tables import Table
from pagoda.values import Keys, MultimodalItem, Namespace, Retention, Tokens, extra_id_list, key_list, token_list, token_row


@dataclasses.dataclass
class _Open:
    """The state that the daemon's answers have reported so far."""

    matched_tokens: int
    token_count: int
    computed_tokens: int
    ready_ticket: int
    tables: dict[int, Table]
    matched_below_tokens: int = 0


class SequenceView:
    """A client's view of one of its sequences. Every answer updates it. Use a sequence in one
    thread at a time."""

    def __init__(self, sequence_id: int, tokens_per_block: int) -> None:
        self.id = sequence_id
        self.freed = False
        """Whether the sequence was freed or never opened. Its blocks then no longer belong to
        it."""
        self._tokens_per_block = tokens_per_block
        self._open: _Open | None = None
        self._error: PagodaError | None = None
        self._loss: Loss | None = None
        self._known_losses = 0
        self._reserved_tokens = 0  # An upper bound that includes pending requests.

    def _opened(self) -> _Open:
        if self._error is not None:
            raise self._error
        if self._open is None:
            raise RuntimeError("the batch that opens this sequence has not run")
        return self._open

    @property
    def matched_tokens(self) -> int:
        """Tokens from the start whose KV was cached when the sequence was opened. Compute from here
        on."""
        return self._opened().matched_tokens

    @property
    def matched_below_tokens(self) -> int:
        """Tokens after the matched ones that were cached only on disk when the sequence was opened.
        Client.prefetch brings them into memory for the next sequence."""
        return self._opened().matched_below_tokens

    @property
    def token_count(self) -> int:
        """The number of tokens of the sequence."""
        return self._opened().token_count

    @property
    def computed_tokens(self) -> int:
        """Tokens from the start whose KV is complete, according to the answers so far."""
        return self._opened().computed_tokens

    @property
    def ready_ticket(self) -> int:
        """The slots of the tables can be read and written when this ticket is done. wait_ready
        waits for it."""
        return self._opened().ready_ticket

    @property
    def tables(self) -> Mapping[int, Table]:
        """The block table of each window, by the window's size in tokens; 0 is full attention."""
        return self._opened().tables

    @property
    def table(self) -> Table:
        """The block table, if the cache has only one window. ValueError: it has several; use
        tables."""
        tables = self._opened().tables
        if len(tables) != 1:
            raise ValueError(f"this sequence has {len(tables)} windows; use tables")
        return next(iter(tables.values()))

    @property
    def known_losses(self) -> int:
        """How many losses of KV have been acknowledged. Every commit carries this number."""
        return self._known_losses

    @property
    def loss(self) -> KvLost | None:
        """A loss of KV that an answer reported and the caller has not acknowledged yet; else
        None."""
        return KvLost.of(self._loss) if self._loss is not None and self._loss.losses > self._known_losses else None

    def acknowledge(self, lost: KvLost) -> int:
        """Declares that the caller will compute the tokens from lost.computed_tokens on again.
        Later commits carry this loss. Returns lost.computed_tokens. Does not acknowledge later
        losses."""
        if lost.sequence_id != self.id:
            raise ValueError(f"this is sequence {self.id}, but the loss is of sequence {lost.sequence_id}")
        self._known_losses = max(self._known_losses, lost.losses)
        return lost.computed_tokens

    def _take_loss(self, loss: Loss) -> None:
        """Applies an entry of an answer's list of shortened sequences. Answers repeat losses and
        can arrive out of order."""
        if self._loss is not None and loss.losses <= self._loss.losses:
            return
        self._loss = loss
        if self._open is not None:
            self._open.computed_tokens = min(self._open.computed_tokens, loss.computed_tokens)

    def _take_tables(self, tables: Iterable[Any], ready_ticket: int) -> None:
        opened = self._opened()
        for message in tables:
            table = opened.tables.setdefault(message.window_size, Table(message.window_size, self._tokens_per_block))
            table._take(message)
        opened.ready_ticket = max(opened.ready_ticket, ready_ticket)

    def _never_opened(self, error: PagodaError) -> None:
        self._error = error
        self.freed = True

    def _error_of(self, details: Details) -> PagodaError:
        """Makes the exception. KV_LOST gets what this or an earlier answer reported about the
        loss."""
        if details.reason != "KV_LOST":
            return make(details)
        return KvLost(details, self._loss or Loss(self.id, 0, self._known_losses, must_be_freed=False))


def _call(sequence: SequenceView, name: str, request: Any, take: Any, told_tokens: int = 0, packed: bytes = b"") -> Call[Any]:
    """An operation whose answer has the blocks of `told_tokens` tokens, and perhaps a replaced tail
    block."""
    return Call(name, request, take, error=sequence._error_of, packed=packed,
                handles=lambda tokens_per_block: told_tokens // tokens_per_block + 2)


def open_sequence(sequence: SequenceView, tokens: Tokens = (), *, reserved_tokens: int = 0, namespace: Namespace | None = None,
                  extra_token_ids: Tokens = (), multimodal_items: Sequence[MultimodalItem] = (), retention: Sequence[Retention] = (),
                  generated_priority: int | None = None, generated_duration: float | None = None,
                  whole_blocks_only: bool = False, keys: Keys = (), uncounted: bool = False) -> Call[None]:
    """Opens a sequence with a prompt. Matches the longest prefix that is cached in memory, at most
    all tokens but the last, and reserves capacity, all or nothing. Blocks that are only on disk do
    not match. matched_below_tokens counts them, and Client.prefetch brings them into memory.

    `reserved_tokens`: the capacity to reserve, in tokens from the start. 0 is the whole prompt.
    With less (chunked prefill), reserve takes the rest later.
    `namespace`: what else must agree before blocks are shared.
    `extra_token_ids`: one per token, 0 for a token without one; or none at all.
    `multimodal_items`: the prompt's images and other items.
    `retention`: the priorities of the prompt's blocks.
    `generated_priority`, `generated_duration`: the same for the blocks after the prompt, 0 to 100
    and seconds.
    `whole_blocks_only`: match no part of a block, for an engine that would drop it.
    `keys`: instead of tokens, the keys of the whole blocks at the start of the sequence
    (Namespace.keyed). All of them can match. Capacity, commits and cuts then are whole blocks.
    `uncounted`: not the first sequence of its request, for example the one with which the request
    goes on after a preemption. Hit rates count a request's prompt once.

    A `with` block or free() frees the sequence. Its computed blocks stay cached.
    Errors: BLOCKS_EXHAUSTED, INVALID_COUNT, INVALID_ARGUMENT, KEYS_AND_TOKENS, INVALID_KEY,
    WHOLE_BLOCKS_ONLY.
    """
    prompt, named = TokenField(tokens, v1.AddSequenceRequest), key_list(keys)
    size = prompt.count + len(named) * sequence._tokens_per_block
    sequence._reserved_tokens = max(size, reserved_tokens)
    request = v1.AddSequenceRequest(
        sequence_id=sequence.id, reserved_tokens=reserved_tokens, namespace=values.named_namespace(namespace, named), keys=named,
        extra_token_ids=extra_id_list(extra_token_ids), multimodal_items=[item.message() for item in multimodal_items],
        retention=[part.message() for part in retention], generated_priority=generated_priority,
        generated_duration_ms=values.optional_milliseconds(generated_duration), whole_blocks_only=whole_blocks_only, uncounted=uncounted)

    def take(done: Any) -> None:
        sequence._open = _Open(done.matched_tokens, size, done.matched_tokens, 0, {}, done.matched_below_tokens)
        sequence._take_tables(done.tables, done.ready_ticket)

    return Call("add_sequence", request, take, sequence._never_opened, packed=prompt.packed,
                handles=lambda tokens_per_block: sequence._reserved_tokens // tokens_per_block + 1)


def append(sequence: SequenceView, tokens: SupportsIndex | Tokens = (), *, computed: int | None = None, keys: Keys = ()) -> Call[None]:
    """Appends one or more tokens, takes the capacity that they need, and declares KV complete. It
    is reserve and commit in one operation, all or nothing. Afterwards the tables have the new
    blocks.

    `computed`: as in commit. `keys`: for a keyed sequence, the keys of the next blocks instead of
    tokens.
    Errors: BLOCKS_EXHAUSTED, UNKNOWN_SEQUENCE, and those of commit.
    """
    added, named = TokenField(tokens if isinstance(tokens, Iterable) else [tokens], v1.AppendTokensRequest), key_list(keys)
    size = added.count + len(named) * sequence._tokens_per_block
    sequence._reserved_tokens += size
    request = v1.AppendTokensRequest(sequence_id=sequence.id, computed_tokens=computed or 0, known_losses=sequence.known_losses, keys=named)

    def take(done: Any) -> None:
        sequence._opened().token_count = done.token_count
        _take_computed(sequence, computed)
        sequence._take_tables(done.added, done.ready_ticket)

    return _call(sequence, "append_tokens", request, take, size, added.packed)


def append_step(sequences: Sequence[SequenceView], tokens: Sequence[SupportsIndex | Tokens], *,
                computed: Sequence[int | None] | None = None) -> Call[dict[int, PagodaError]]:
    """Appends to many sequences in one operation, as in a decode step. Each sequence gets one or
    more tokens and the `computed` of append.

    Each sequence succeeds or fails by itself. Returns the errors of append by the index of their
    sequence; the result is empty if all succeeded.
    Errors of the whole operation: ValueError if the arguments have different lengths;
    INVALID_ARGUMENT (no sequence, or more than 1,024).
    """
    if len(tokens) != len(sequences) or (computed is not None and len(computed) != len(sequences)):
        raise ValueError(f"{len(sequences)} sequences, tokens for {len(tokens)}, computed for {len(computed or ())}")
    named = [[some] if type(some) is int or not isinstance(some, Iterable) else token_row(some) for some in tokens]
    try:
        flat = TokenField([token for ids in named for token in ids], v1.AppendStepRequest)
    except (TypeError, ValueError):
        for index, ids in enumerate(named):
            try:
                token_list(ids)
            except (TypeError, ValueError) as error:
                raise type(error)(f"sequence {index}: {error}") from None
        raise
    complete = [0] * len(sequences) if computed is None else [some or 0 for some in computed]
    for sequence, ids in zip(sequences, named):
        sequence._reserved_tokens += len(ids)
    losses = [sequence.known_losses for sequence in sequences]
    counts = [len(ids) for ids in named]
    packed = number_field(v1.AppendStepRequest, "sequence_ids", "Q", [sequence.id for sequence in sequences]) + flat.packed
    for name, numbers, usual in (("token_counts", counts, 1), ("computed_tokens", complete, 0), ("known_losses", losses, 0)):
        if numbers.count(usual) != len(numbers):
            packed += number_field(v1.AppendStepRequest, name, "I", numbers)

    def finish(done: Any, session: Surroundings) -> dict[int, PagodaError]:
        failed: dict[int, Any] = {one.index: of_result(one.error) for one in done.failed}
        for index, sequence in enumerate(sequences):
            if index not in failed:
                sequence._opened().token_count += counts[index]
                _take_computed(sequence, complete[index])
        handles, begin = rows(done.blocks), 0
        for (index, first, count), ready in zip(rows(done.grown).tolist(), done.ready_tickets):
            opened = sequences[index]._opened()
            for window in session.cache.windows:
                opened.tables[window.window_size]._put(first, handles[begin:begin + count])
                begin += count
            opened.ready_ticket = max(opened.ready_ticket, ready)
        return failed

    def errors(failed: dict[int, Any]) -> dict[int, PagodaError]:
        return {index: sequences[index]._error_of(details) for index, details in failed.items()}

    # An error counts as 28 handles.
    return Call("append_step", v1.AppendStepRequest(), lambda done: done, complete=finish, behind_losses=errors, packed=packed,
                handles=lambda tokens_per_block: flat.count // tokens_per_block + 30 * len(sequences))


def reserve(sequence: SequenceView, count: int) -> Call[None]:
    """Reserves capacity for `count` more tokens, all or nothing. Their ids need not be known yet.
    Afterwards the tables have the new blocks.

    Errors: UNKNOWN_SEQUENCE, BLOCKS_EXHAUSTED, INVALID_COUNT, KV_LOST (the sequence can only be
    freed).
    """
    sequence._reserved_tokens += count
    return _call(sequence, "reserve_tokens", v1.ReserveTokensRequest(sequence_id=sequence.id, count=count),
                 lambda done: sequence._take_tables(done.added, done.ready_ticket), count)


def commit(sequence: SequenceView, tokens: Tokens = (), *, computed: int | None = None, keys: Keys = ()) -> Call[None]:
    """Names the next tokens, whose capacity is already reserved, and declares KV complete.

    `computed`: the bytes of the sequence's first `computed` tokens are complete and visible to
    every process that maps the pools. It counts from the sequence's start and never goes backwards,
    except after a loss. None leaves it unchanged. Blocks that became full are cached.
    `keys`: for a keyed sequence, the keys of the next blocks instead of tokens.
    Errors: UNKNOWN_SEQUENCE, RESERVATION_EXCEEDED, COMPUTED_BACKWARDS, COMPUTED_BEYOND_TOKENS,
    KEYS_AND_TOKENS, INVALID_KEY, WHOLE_BLOCKS_ONLY (of a keyed sequence), KV_LOST (see KvLost).
    """
    named = TokenField(tokens, v1.CommitTokensRequest)
    request = v1.CommitTokensRequest(sequence_id=sequence.id, computed_tokens=computed or 0, known_losses=sequence.known_losses,
                                     keys=key_list(keys))

    def take(done: Any) -> None:
        sequence._opened().token_count = done.token_count
        _take_computed(sequence, computed)

    return _call(sequence, "commit_tokens", request, take, packed=named.packed)


def _take_computed(sequence: SequenceView, computed: int | None) -> None:
    if computed:
        sequence._opened().computed_tokens = computed


def truncate(sequence: SequenceView, token_count: int) -> Call[None]:
    """Drops all tokens after the first `token_count`, and the capacity behind them, for example
    after rejected speculation. Cached blocks stay cached.

    Errors: UNKNOWN_SEQUENCE, INVALID_COUNT, WINDOW_PASSED, BLOCKS_EXHAUSTED (no free block for the
    copy of a cut block).
    """
    def take(done: Any) -> None:
        opened = sequence._opened()
        opened.token_count, opened.computed_tokens = done.token_count, done.computed_tokens
        sequence._take_tables(done.tables, done.ready_ticket)

    return _call(sequence, "truncate_sequence", v1.TruncateSequenceRequest(sequence_id=sequence.id, token_count=token_count), take)


def fork(sequence: SequenceView, child: SequenceView) -> Call[None]:
    """Opens another sequence with the same tokens, for beams or parallel samples. The two share all
    blocks that hold computed tokens. A shared tail is copied when one of the two grows.

    Errors: UNKNOWN_SEQUENCE, KV_LOST (the sequence can only be freed), TOO_MANY_SEQUENCES,
    SEQUENCE_BYTES_EXHAUSTED.
    """
    # The child starts with the losses that the parent's caller has acknowledged.
    child._known_losses = sequence.known_losses
    child._reserved_tokens = sequence._reserved_tokens

    def take(done: Any) -> None:
        child._open = _Open(sequence.matched_tokens, done.token_count, done.computed_tokens, sequence.ready_ticket, {},
                            sequence.matched_below_tokens)
        child._take_tables(done.tables, done.ready_ticket)

    request = v1.ForkSequenceRequest(sequence_id=sequence.id, new_sequence_id=child.id)
    return Call("fork_sequence", request, take, child._never_opened, sequence._error_of,
                handles=lambda tokens_per_block: child._reserved_tokens // tokens_per_block + 1)


def describe(sequence: SequenceView) -> Call[values.SequenceInfo]:
    """Returns the daemon's state of the sequence, in tokens, and updates tables and counts. Call it
    after a lost answer, and to get the entries that a sliding window has passed. Afterwards
    wait_ready also waits for the copies of the slots in a lost answer.

    Errors: UNKNOWN_SEQUENCE.
    """
    def take(done: Any) -> values.SequenceInfo:
        if sequence._open is None:  # The answer that opened it was lost.
            sequence._open = _Open(0, 0, 0, 0, {})
        sequence._open.token_count, sequence._open.computed_tokens = done.token_count, done.computed_tokens
        sequence._reserved_tokens = done.reserved_tokens
        sequence._take_tables(done.tables, done.ready_ticket)
        return values.SequenceInfo(done.token_count, done.computed_tokens, done.reserved_tokens, done.losses)

    return _call(sequence, "describe_sequence", v1.DescribeSequenceRequest(sequence_id=sequence.id), take, sequence._reserved_tokens)


def query_capacity(sequence: SequenceView, max_new_tokens: int) -> Call[values.Capacity]:
    """Returns how many blocks `max_new_tokens` more would take. It takes and promises nothing.

    Errors: UNKNOWN_SEQUENCE.
    """
    request = v1.QueryCapacityRequest(sequence_id=sequence.id, max_new_tokens=max_new_tokens)
    return _call(sequence, "query_capacity", request, take_capacity)


def free(sequence: SequenceView) -> Call[None]:
    """Ends the sequence. Its computed blocks, including the tail, stay cached. Its other blocks
    become free.

    Errors: UNKNOWN_SEQUENCE.
    """
    def take(done: Any) -> None:
        sequence.freed = True

    return _call(sequence, "free_sequence", v1.FreeSequenceRequest(sequence_id=sequence.id), take)
