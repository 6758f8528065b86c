"""Prefill and decode apart: a finished request's prefix is kept for another machine, which fetches
it."""

import dataclasses
import logging

from pagoda._batch import Recorder
from pagoda._call import Pending
from pagoda.client import Client
from pagoda.connector.request import Text
from pagoda.errors import NotServed
from pagoda.values import ExportedPrefix, Pinned

log = logging.getLogger("pagoda.connector")


@dataclasses.dataclass(frozen=True)
class Handover:
    """Where another machine fetches a prefix."""

    source: str
    """The daemon's address for other daemons, "HOST:PORT"."""
    tokens: int
    """The tokens from the start that it has, or has in a moment."""


class Handovers:
    """How prefixes are handed over. Not thread-safe: the SchedulerSide's lock guards it."""

    def __init__(self, *, lease: float = 30.0) -> None:
        """`lease`: seconds for which a prefix is kept."""
        self._lease = lease
        self._client: Client | None = None
        self._address = ""

    def address(self, client: Client) -> str:
        """The address at which other daemons reach the client's daemon; "" if it answers none. Asks
        the daemon once in a session. Raises what the call raises."""
        if client is not self._client:
            # An export of a part of a block: it tells the address, and pins nothing.
            try:
                exported = client.export_prefix([0], lease=self._lease)
            except NotServed:  # An older daemon.
                exported = ExportedPrefix("", 0, 0, 0)
            if exported.pin_id:
                client.unpin(exported.pin_id)
            self._client, self._address = client, exported.source
            if not self._address:
                log.warning("the daemon answers no other daemons (peers.address): prefixes are handed over by a store alone")
        return self._address

    def pin(self, batch: Recorder, text: Text) -> Pending[Pinned]:
        """Keeps the request's cached blocks for the lease."""
        return batch.pin(text.tokens[:], lease=self._lease, namespace=text.namespace, multimodal_items=text.items)
