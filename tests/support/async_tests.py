"""Coroutine tests on a loop whose clock jumps instead of waiting."""

import functools
import inspect
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from simulation.plans import Plan
from simulation.world import World
from support.virtual_time import run_in_virtual_time

AsyncTest = Callable[..., Coroutine[Any, Any, None]]
Setting = Callable[[], AbstractAsyncContextManager[Any]]


def virtual(test: AsyncTest, *, patience: float = 0) -> Callable[..., None]:
    @functools.wraps(test)
    def run(*given: Any, **fixtures: Any) -> None:
        run_in_virtual_time(test(*given, **fixtures), patience=patience)

    return run


#: For tests with sockets, which the clock waits for.
played = functools.partial(virtual, patience=0.001)


def within(setting: Setting, *, patience: float = 0) -> Callable[[AsyncTest], Callable[..., None]]:
    """Run a test in virtual time; its first argument comes from a context manager, which ends after it."""

    def decorate(test: AsyncTest) -> Callable[..., None]:
        async def story(*given: Any, **fixtures: Any) -> None:
            async with setting() as thing:
                await test(thing, *given, **fixtures)

        @functools.wraps(test)
        def run(*given: Any, **fixtures: Any) -> None:
            run_in_virtual_time(story(*given, **fixtures), patience=patience)

        # pytest passes the remaining arguments.
        run.__signature__ = inspect.Signature([*inspect.signature(test).parameters.values()][1:])  # type: ignore[attr-defined]
        return run

    return decorate


@asynccontextmanager
async def simulated(plan: Plan | None = None) -> AsyncIterator[World]:
    """Start a simulated world with its operator."""
    world = World(plan or Plan("create"))
    world.begin()
    try:
        yield world
    finally:
        await world.end()


in_world = within(simulated)
