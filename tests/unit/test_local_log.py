"""The logs that `tfcluster local` keeps are read as the kubelet's are."""

from __future__ import annotations

import asyncio

from tfcluster.local.container_log import ContainerLog, answer


def read(log: ContainerLog, **query: str) -> bytes:
    async def whole() -> bytes:
        return b"".join([chunk async for chunk in answer(log, query)])

    return asyncio.run(whole())


def test_a_progress_bar_is_one_line(tmp_path):
    """A carriage return ends no line: neither a tail nor the lines since a time cut a progress bar."""
    log = ContainerLog(tmp_path / "log")
    log.write(b"begun\n10%\r20%\r30%\ndone\n")
    log.close()

    assert read(log, tailLines="2") == b"10%\r20%\r30%\ndone\n"
    assert read(log, sinceTime="2020-01-01T00:00:00Z") == b"begun\n10%\r20%\r30%\ndone\n"


def test_a_followed_log_comes_in_whole_lines(tmp_path):
    """Lines that together are longer than what is read at once keep their ends and their times to themselves."""
    log = ContainerLog(tmp_path / "log")
    lines = [b"%06d " % number + b"x" * 9000 for number in range(300)]
    log.write(b"\n".join(lines) + b"\n")
    log.close()

    async def followed() -> bytes:
        return b"".join([chunk async for chunk in log.follow(0)])

    kept = asyncio.run(followed()).splitlines()
    assert [line.split(b" ", 1)[1] for line in kept] == lines
    assert read(log, follow="true").splitlines() == lines
