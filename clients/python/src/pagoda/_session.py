"""A session without its transport: it processes every answer. The clients of both kinds are thin
layers around it."""

import itertools
import threading
import weakref
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from pagoda._call import Pending, Surroundings
from pagoda._map_socket import MapSocket, SessionRef
from pagoda._sequences import SequenceView
from pagoda._wire import BatchRequest, session_field
from pagoda.errors import BatchFailed, Loss, of_result
from pagoda.values import CacheInfo, Lane

# The daemon remembers the last answers of a session, up to 1 MiB. A block handle takes 12 bytes.
# The bound is an eighth of that, so that answers of other threads fit too.
_MOST_HANDLES = (1 << 17) // 12
_LANES = tuple(Lane)


def waits_in(pending: Iterable[Pending[Any]]) -> bool:
    """Whether one of the operations waits for a ticket."""
    return any(one._call.name == "wait_for_ticket" for one in pending)


class Session:
    """Thread-safe."""

    def __init__(self, opened: Any) -> None:
        self.ref = opened.session
        self._ref_field = session_field(self.ref)
        self.lease: float = opened.lease_ms / 1000
        self.epoch: int = opened.epoch
        self.cache = CacheInfo.take(opened.cache)
        self.shared_ref = SessionRef.take(opened)
        self._surroundings = Surroundings(MapSocket(self.shared_ref), self.cache)
        self.revision = 0
        self.completed_tickets = dict.fromkeys(Lane, 0)
        self._steps = (0, 0)
        # Ids count from 1, because 0 means "no sequence" in a QueryCapacityRequest.
        self._ids = itertools.count(1)
        self._retry_ids = itertools.count(1)
        self._lock = threading.Lock()
        self._sequences: weakref.WeakValueDictionary[int, SequenceView] = weakref.WeakValueDictionary()

    def next_id(self) -> int:
        return next(self._ids)

    def register(self, sequence: SequenceView) -> None:
        """The sequence learns of its losses from now on."""
        with self._lock:
            self._sequences[sequence.id] = sequence

    def request(self, pending: Sequence[Pending[Any]], step: int | None = None, completed_step: int | None = None) -> BatchRequest:
        """Builds an ExecuteRequest. Steps that are None are those of the last batch that ran."""
        current, completed = self._steps
        return BatchRequest(self._ref_field, [one._call.serialized() for one in pending], step=current if step is None else step,
                            completed_step=completed if completed_step is None else completed_step, retry_id=self._retry_id(pending),
                            waits=waits_in(pending))

    def _retry_id(self, pending: Sequence[Pending[Any]]) -> int:
        """An id with which the batch can be sent again; 0 if its answer may be too large for the
        daemon to remember."""
        handles = sum(one._call.handles(self.cache.tokens_per_block) for one in pending) * len(self.cache.windows)
        return next(self._retry_ids) if handles <= _MOST_HANDLES else 0

    def settle(self, request: BatchRequest, pending: Sequence[Pending[Any]], result: Any) -> None:
        """Applies a BatchResult in this order: the successes, the losses, and the failures, which
        the losses may have caused."""
        with self._lock:
            self._steps = (max(self._steps[0], request.step), max(self._steps[1], request.completed_step))
            self.revision = max(self.revision, result.revision)
            completed = (result.completed_ticket, result.completed_fetch_ticket, result.completed_backup_ticket)
            for lane, ticket in zip(_LANES, completed, strict=True):
                if ticket > self.completed_tickets[lane]:
                    self.completed_tickets[lane] = ticket
            failed = []
            for one, outcome in zip(pending, result.results, strict=True):
                if outcome.HasField("error"):
                    failed.append((one, outcome.error))
                else:
                    one._succeed(getattr(outcome, outcome.WhichOneof("result")), self._surroundings)
            for lost in result.shortened:
                sequence = self._sequences.get(lost.sequence_id)
                if sequence is not None:
                    sequence._take_loss(Loss(lost.sequence_id, lost.computed_tokens, lost.losses, lost.must_be_freed))
            for one in pending:
                one._take_losses()
            for one, error in failed:
                one._fail(of_result(error))


class SessionView:
    """The session's data, for clients of both kinds."""

    def __init__(self, opened: Any, timeout: float) -> None:
        self.timeout = timeout
        """Seconds to wait for each answer."""
        self._session = Session(opened)

    @property
    def cache(self) -> CacheInfo:
        """The cache of the session."""
        return self._session.cache

    @property
    def session_ref(self) -> SessionRef:
        """Names this session to other processes on this machine, which map its pools with it
        (map_pools). It is a credential."""
        return self._session.shared_ref

    @property
    def epoch(self) -> int:
        """The incarnation of the daemon's state."""
        return self._session.epoch

    @property
    def lease(self) -> float:
        """Seconds that the session outlives this client's last keep-alive call."""
        return self._session.lease

    @property
    def revision(self) -> int:
        """The revision of the last event, as of the last answer."""
        return self._session.revision

    @property
    def completed_ticket(self) -> int:
        """All copies between memory tiers up to this ticket have ended, as of the last answer."""
        return self._session.completed_tickets[Lane.MEMORY]

    @property
    def completed_tickets(self) -> Mapping[Lane, int]:
        """The completed ticket of each lane: everything up to it has ended, as of the last
        answer."""
        return MappingProxyType(self._session.completed_tickets)


def raise_failures(pending: Sequence[Pending[Any]]) -> None:
    errors = [one.error for one in pending if one.error is not None]
    if errors:
        raise BatchFailed(f"{len(errors)} of {len(pending)} operations failed", errors)
