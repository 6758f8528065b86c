"""Where a reader stands in the event stream: what to ask for next, and whether what comes goes on from there."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import grpc

from pagoda import errors, events
from pagoda._contract import v1
from pagoda.errors import PagodaError, WatchRefused
from pagoda.events import Gap, Item, Progress, SnapshotBegin, SnapshotEnd


@dataclasses.dataclass(frozen=True)
class Wanted:
    """What a watch was asked for. ValueError: a beginning that says two things."""

    from_revision: int | None = None
    """The first revision wanted; None: from now."""
    epoch: int = 0
    """The one it belongs to; 0: whichever is current."""
    snapshot: bool = False
    resnapshot: bool = False
    progress: bool = False
    shown: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """The request's fields that say what is to be shown."""

    def __post_init__(self) -> None:
        if self.snapshot and (self.from_revision is not None or self.epoch):
            raise ValueError("a watch begins with a snapshot or at a revision of an epoch, not with both")

    @property
    def renews(self) -> bool:
        """Whether it begins anew with a snapshot where it cannot go on."""
        return self.snapshot or self.resnapshot


class StreamPosition:
    """Where a Watch stream stands: every message has to begin where the one before it ended, over broken connections too."""

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self.cache = ""
        """Which of the daemon's caches; "": the only one."""
        self.epoch = wanted.epoch
        self.revision = 0 if wanted.from_revision is None else wanted.from_revision - 1
        """The last revision that the messages cover."""
        self._next = wanted.from_revision
        self._in_snapshot = wanted.snapshot  # One is asked for, or on its way: there is nothing to resume.
        self._opening = True  # The next message is a stream's first one.
        self._why = ""  # Why a stream does not go on where the last one ended.
        self._why_snapshot = ""  # Why a snapshot begins within a stream.

    def request(self) -> Any:
        """The request that opens the stream, or goes on with it."""
        self._opening = True
        anew = self._in_snapshot
        return v1.WatchRequest(from_revision=None if anew else self._next, epoch=0 if anew or self._why else self.epoch, snapshot=anew,
                               resnapshot_when_behind=self.wanted.renews, cache=self.cache, **self.wanted.shown)

    def accept(self, message: Any) -> list[Item]:
        """What a message tells. Where something is missing: a Gap, and in a watch that begins anew with snapshots a PagodaError (DATA_LOSS),
        because only a daemon at fault leaves one there."""
        items: list[Item] = []
        if message.snapshot_begin:
            items.append(SnapshotBegin(message.epoch, self._why or self._why_snapshot))
            self._in_snapshot = True
        elif gap := self._gap(message):
            if self.wanted.renews:
                raise _missing(gap)
            items.append(gap)
        items += events.take(message)
        if message.snapshot_end and self._in_snapshot:
            items.append(SnapshotEnd(message.epoch, message.revision))
            self._in_snapshot = False
        elif self.wanted.progress and not (items or self._in_snapshot or self._opening):
            items.append(Progress(message.epoch, message.revision))
        self._opening, self._why, self._why_snapshot = False, "", "REVISION_COMPACTED"
        self.epoch, self.revision, self._next = message.epoch, message.revision, message.revision + 1
        return items

    def _gap(self, message: Any) -> Gap | None:
        goes_on = self._next is None or message.previous_revision == self.revision
        if self._in_snapshot and self._opening:  # It was to begin with one.
            goes_on = False
        if goes_on and message.epoch == (self.epoch or message.epoch):
            return None
        reason = self._why or ("MESSAGE_MISSING" if message.epoch == self.epoch else "EPOCH_CHANGED")
        return Gap(reason, self.epoch, self.revision, message.epoch, message.previous_revision + 1)

    def broke(self) -> None:
        """The stream ended. A snapshot that was under way is worth nothing."""
        if self._in_snapshot:
            self._why = self._why or "STREAM_BROKEN"

    def refuse(self, refused: WatchRefused) -> None:
        """The daemon cannot go on from here: the next request begins with a snapshot, or else with the oldest event that it has."""
        self._why = refused.reason
        if self.wanted.renews:
            self._in_snapshot = True
        else:
            self._next = max(refused.oldest_revision, 1)


def _missing(gap: Gap) -> PagodaError:
    told = f"the stream stood at revision {gap.previous_revision} of epoch {gap.previous_epoch:016x}, and its next message goes on from " \
           f"{gap.next_revision - 1} of {gap.epoch:016x}"
    return errors.make(errors.Details(grpc.StatusCode.DATA_LOSS, told, gap.reason))
