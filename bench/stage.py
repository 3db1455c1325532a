"""The environment of a measurement: a world, a folder, and the scale."""

from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.world import World


@dataclass(frozen=True)
class Stage:
    """The surroundings of one or more measurements; what is entered on the stack ends with the last of them."""

    world: World
    directory: Path
    scale: float
    """1 for figures; less to see quickly that a measurement works."""
    stack: AsyncExitStack
    tfjob_source: Path | None = None
    """The sources of TFJob, where it is measured, too."""
    shared: dict[str, Any] = field(default_factory=dict)
    """What one measurement has built and the next ones go on using, by name."""

    def scaled(self, count: float, *, least: int = 1) -> int:
        """Return a count at this scale."""
        return max(least, round(count * self.scale))
