"""A reader's position in the event stream: the next request, and whether the next message continues
from the position."""

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
    """The options of a watch. ValueError: a start with both a snapshot and a revision or epoch."""

    from_revision: int | None = None
    """The first revision; None: from now."""
    epoch: int = 0
    """The epoch of from_revision; 0: the current one."""
    snapshot: bool = False
    resnapshot: bool = False
    progress: bool = False
    shown: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """The request's filter fields."""

    def __post_init__(self) -> None:
        if self.snapshot and (self.from_revision is not None or self.epoch):
            raise ValueError("a watch begins with a snapshot or at a revision of an epoch, not with both")

    @property
    def renews(self) -> bool:
        """Whether the watch restarts with a snapshot if it cannot continue."""
        return self.snapshot or self.resnapshot


class StreamPosition:
    """The position of a Watch stream. Each message must begin where the previous one ended, even
    after a broken connection."""

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self.cache = ""
        """The name of the daemon's cache; "": the only one."""
        self.epoch = wanted.epoch
        self.revision = 0 if wanted.from_revision is None else wanted.from_revision - 1
        """The last revision that the messages cover."""
        self._next = wanted.from_revision
        # A snapshot is requested or arriving: the stream cannot be resumed.
        self._in_snapshot = wanted.snapshot
        self._opening = True  # The next message is the first one of a stream.
        self._why = ""  # Why a stream does not continue where the last one ended.
        self._why_snapshot = ""  # Why a snapshot begins within a stream.

    def request(self) -> Any:
        """The request that opens or continues the stream."""
        self._opening = True
        anew = self._in_snapshot
        return v1.WatchRequest(from_revision=None if anew else self._next, epoch=0 if anew or self._why else self.epoch, snapshot=anew,
                               resnapshot_when_behind=self.wanted.renews, cache=self.cache, **self.wanted.shown)

    def accept(self, message: Any) -> list[Item]:
        """Returns the items of a message. If events are missing, the first item is a Gap. A watch
        that restarts with snapshots raises PagodaError (DATA_LOSS) instead, because only a faulty
        daemon leaves a gap there."""
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
        if self._in_snapshot and self._opening:  # The stream should have begun with a snapshot.
            goes_on = False
        if goes_on and message.epoch == (self.epoch or message.epoch):
            return None
        reason = self._why or ("MESSAGE_MISSING" if message.epoch == self.epoch else "EPOCH_CHANGED")
        return Gap(reason, self.epoch, self.revision, message.epoch, message.previous_revision + 1)

    def broke(self) -> None:
        """The stream ended. An incomplete snapshot is discarded."""
        if self._in_snapshot:
            self._why = self._why or "STREAM_BROKEN"

    def refuse(self, refused: WatchRefused) -> None:
        """The daemon cannot continue from this position. The next request begins with a snapshot,
        or with the daemon's oldest event."""
        self._why = refused.reason
        if self.wanted.renews:
            self._in_snapshot = True
        else:
            self._next = max(refused.oldest_revision, 1)


def _missing(gap: Gap) -> PagodaError:
    told = f"the stream was at revision {gap.previous_revision} of epoch {gap.previous_epoch:016x}, but its next message continues from " \
           f"{gap.next_revision - 1} of {gap.epoch:016x}"
    return errors.make(errors.Details(grpc.StatusCode.DATA_LOSS, told, gap.reason))
