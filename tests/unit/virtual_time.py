"""An event loop whose clock jumps to the next timer instead of waiting for it: hours pass in no time."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, Final

#: What one turn of the loop takes, in seconds: where time stood still, a timer that is due in no time would never be.
TICK: Final = 1e-6


class _Jumping(selectors.SelectSelector):
    def __init__(self, loop: VirtualTimeLoop) -> None:
        super().__init__()
        self._of = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise AssertionError("every task waits and no timer is set: a deadlock")
        self._of.now += timeout + TICK
        return super().select(0)


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """A loop that starts at 1,000 seconds."""

    def __init__(self) -> None:
        self.now = 1000.0
        super().__init__(_Jumping(self))

    def time(self) -> float:
        return self.now


def run_in_virtual_time(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine to its end; what takes seconds takes none.

    Raises:
        AssertionError: nothing is left that could wake it.
    """
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(coroutine)
