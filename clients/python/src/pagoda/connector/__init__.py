"""The common parts of the engines' connectors: a session that can be lost, the layout of pages,
holding and committing blocks, and copies.

An engine's module translates the engine's calls to these: pagoda.vllm, pagoda.sglang,
pagoda.lmcache. clients/python/CONNECTORS.md describes how the parts work together.
"""

from pagoda.connector.fetch import Sources
from pagoda.connector.handover import Handover, Handovers
from pagoda.connector.keyed import Chain, KeyedPages
from pagoda.connector.keyed_options import KeyedOptions
from pagoda.connector.link import Link
from pagoda.connector.movers import ArrayMover, Codec, HostMover, Mark, Mover, Places, Stream
from pagoda.connector.page_memory import ArrayPages, Buffers
from pagoda.connector.pages import LayerPages, PageLayout, RankPages
from pagoda.connector.plan import BlockCopies, StepPlan, StepReport
from pagoda.connector.request import Counts, Scheduled, Text
from pagoda.connector.scheduler import SchedulerSide
from pagoda.connector.worker import Moved, WorkerSide

__all__ = ["ArrayMover", "ArrayPages", "BlockCopies", "Buffers", "Chain", "Codec", "Counts", "Handover", "Handovers", "HostMover",
           "KeyedOptions", "KeyedPages", "LayerPages", "Link", "Mark", "Moved", "Mover", "PageLayout", "Places", "RankPages", "Scheduled",
           "SchedulerSide", "Sources", "StepPlan", "StepReport", "Stream", "Text", "WorkerSide"]
