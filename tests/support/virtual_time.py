"""An event loop whose clock jumps to the next timer instead of waiting for it."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, Final

#: The virtual duration of one turn of the loop, in seconds: without it, a timer of zero seconds would never be due.
TICK: Final = 1e-6


class _Jumping(selectors.SelectSelector):
    def __init__(self, loop: "VirtualTimeLoop", patience: float) -> None:
        super().__init__()
        self._of = loop
        self._patience = patience

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(self._patience if timeout != 0 else 0)
        if ready:
            timeout = 0
        if timeout is None:
            raise AssertionError("every task waits and no timer is set: a deadlock")
        self._of.now += timeout + TICK
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """A loop that starts at 1,000 seconds, and waits ``patience`` real seconds for sockets before its clock jumps."""

    def __init__(self, patience: float = 0) -> None:
        self.now = 1000.0
        super().__init__(_Jumping(self, patience))

    def time(self) -> float:
        return self.now


def run_in_virtual_time(coroutine: Coroutine[Any, Any, Any], *, patience: float = 0) -> Any:
    with asyncio.Runner(loop_factory=lambda: VirtualTimeLoop(patience)) as runner:
        return runner.run(coroutine)
