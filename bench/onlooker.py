"""A controller that only watches: the minimum that every controller does in addition to its writes.

``python -m bench.onlooker KUBECONFIG NAMESPACE`` opens the operator's watches of one namespace and discards the
events without decoding them. Beside the baseline client it shows how much of an operator's time is the watch itself.
"""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import uvloop

from bench.http import session
from bench.observer import LISTS


@asynccontextmanager
async def onlooker(kubeconfig: Path, namespace: str) -> AsyncIterator[int]:
    """Let it watch for the length of a ``with`` block.

    Yields:
        Its process number; its watches are open.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "bench.onlooker",
        str(kubeconfig),
        namespace,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        told = await process.stdout.readline()
        assert told == b"watching\n", f"the onlooker failed: {told!r}"
        yield process.pid
    finally:
        # The process also ends when its input is closed because this process was killed.
        process.stdin.close()
        await process.wait()


async def _watch(http: aiohttp.ClientSession, url: str, opened: asyncio.Event) -> None:
    async with http.get(f"{url}?limit=1") as answer:
        version = (await answer.json())["metadata"]["resourceVersion"]
    # The server does not end a watch within half an hour, and every run is shorter.
    async with http.get(f"{url}?watch=true&resourceVersion={version}") as stream:
        opened.set()
        async for _ in stream.content.iter_any():
            pass
    raise SystemExit(f"the watch of {url} has ended")


async def _serve(kubeconfig: Path, namespace: str) -> None:
    http, server = session(kubeconfig, connections=0)
    async with http, asyncio.TaskGroup() as watches:
        opened = [asyncio.Event() for _ in LISTS]
        tasks = [
            watches.create_task(_watch(http, server + of_kind.format(namespace), each))
            for of_kind, each in zip(LISTS, opened, strict=True)
        ]
        for each in opened:
            await each.wait()
        print("watching", flush=True)
        await asyncio.to_thread(sys.stdin.read)
        for task in tasks:
            task.cancel()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        uvloop.run(_serve(Path(sys.argv[1]), sys.argv[2]))
