"""The messages between the scheduler's side of a connector and the workers, for each step. Plain
data that can be pickled."""

import dataclasses


@dataclasses.dataclass
class BlockCopies:
    """Blocks of the engine, and the parts of slots that hold, or will hold, the same tokens: one
    entry each, by group.

    A part is `slot * blocks_per_slot + place`.
    """

    blocks: list[list[int]]
    parts: list[list[int]]

    @classmethod
    def none(cls, groups: int) -> "BlockCopies":
        return cls([[] for _ in range(groups)], [[] for _ in range(groups)])

    def add(self, group: int, block: int, part: int) -> None:
        self.blocks[group].append(block)
        self.parts[group].append(part)

    def __bool__(self) -> bool:
        return any(self.blocks)

    def all_blocks(self) -> set[int]:
        return set().union(*self.blocks)


@dataclasses.dataclass
class StepPlan:
    """One step of an engine."""

    step: int
    session: bytes | None
    """SessionRef.to_bytes of the session that owns these slots; None if there is no session."""
    loads: dict[str, BlockCopies]
    """By request: copies from slots into the engine's blocks."""
    failed_loads: set[str]
    """Requests whose load is no longer possible: they must be computed."""
    saves: BlockCopies
    """Copies from the engine's blocks into slots, after the step."""
    new_blocks: set[int]
    """Blocks that a request gets with this step. Earlier saves may still read them."""


@dataclasses.dataclass
class StepReport:
    """The workers' completed work, by rank."""

    done: dict[int, int]
    """Each rank's last step for which, together with all earlier steps, all copies have ended."""
    failed_saves: set[int]
    """Steps whose saves did not happen on some rank."""

    def merge(self, other: "StepReport") -> "StepReport":
        done = {rank: max(self.done.get(rank, 0), other.done.get(rank, 0)) for rank in self.done.keys() | other.done.keys()}
        return StepReport(done, self.failed_saves | other.failed_saves)
