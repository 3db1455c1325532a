"""``python -m bench``: how fast the operator is, beside a baseline client, on a control plane of this machine.

It measures and prints; the exit status is 1 only if a measurement failed, whatever the figures are.
"""

import argparse
import asyncio
import math
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from types import FrameType

import uvloop

from bench import book, page
from bench.catalogue import ALL, BY_NAME, CROWD_NODES, Measurement, Where
from bench.stage import Stage
from bench.world import raised
from tests.support.operator_process import PYTHON

#: A guard against a measurement that hangs unattended.
_PATIENCE_SECONDS = 4 * 3600
Keep = Callable[[book.Result], None]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the measurements that the command line selects, and print the figures."""
    options = parse(arguments)
    if options.list:
        for each in ALL:
            print(f"{each.name:14} {each.summary}{' (by name only)' if each.by_name_only else ''}")
        return 0
    if options.render:
        page.write(book.load())
        return 0
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _end)
    try:
        return 1 if _run(chosen(options.only, tfjob=options.tfjob_source is not None), options) else 0
    except KeyboardInterrupt:
        print("interrupted: everything that was started has ended", file=sys.stderr)
        return 130


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "--only", nargs="+", default=[], choices=sorted(BY_NAME), metavar="NAME", help="measure these; see --list"
    )
    parser.add_argument("--pairs", type=_at_least_one, help="how many pairs (or runs) of each")
    parser.add_argument("--write", action="store_true", help="keep the figures: bench/figures.json, bench/RESULTS.md")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures of this run there")
    parser.add_argument("--list", action="store_true", help="name the measurements")
    parser.add_argument("--render", action="store_true", help="write bench/RESULTS.md again, and measure nothing")
    parser.add_argument(
        "--scale", type=float, default=1.0, help="how large everything is; less than 1 shows that it works"
    )
    parser.add_argument("--tfjob-source", type=Path, metavar="DIR", help="TFJob's sources: measure it, too")
    options = parser.parse_args(arguments)
    if not 0 < options.scale <= 1:
        parser.error("--scale is more than 0 and at most 1")
    if options.write and options.scale != 1:
        parser.error("--write keeps figures of full scale only")
    if options.write and sys.executable == PYTHON:
        parser.error("--write needs an operator without the tests' packages: use `make bench WRITE=1`")
    if any(name.startswith("tfjob-") for name in options.only) and not options.tfjob_source:
        parser.error("tfjob-… needs --tfjob-source")
    return options


def chosen(only: Sequence[str], *, tfjob: bool = False) -> list[Measurement]:
    """Return the measurements of these names, or the default ones, with TFJob's or without."""
    if only:
        return [each for each in ALL if each.name in only]
    return [each for each in ALL if not each.by_name_only and (tfjob or not each.name.startswith("tfjob-"))]


def _at_least_one(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


def _end(_number: int, _frame: FrameType | None) -> None:
    """Exit as after an interruption: everything that was started is ended, and further signals are ignored."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise KeyboardInterrupt


def _run(measurements: Sequence[Measurement], options: argparse.Namespace) -> list[str]:
    """Run all measurements; return the names of those that failed."""
    about = book.here()
    results: list[book.Result] = []
    failed: list[str] = []

    def keep(result: book.Result) -> None:
        result.provenance = about
        results.append(result)
        print(page.section(result), flush=True)
        if options.json:
            options.json.write_text(book.dump(book.merged({}, results)), encoding="utf-8")
        if options.write:
            found = book.merged(book.load(), [result])
            book.BOOK.write_text(book.dump(found), encoding="utf-8")
            page.write(found)

    todo = list(measurements)
    while todo:
        batch = [each for each in todo if each.where is todo[0].where is Where.CROWD] or todo[:1]
        done: list[Measurement] = []
        try:
            _batch(batch, options, done, keep)
        except Exception:  # noqa: BLE001 - the others are measured nevertheless
            traceback.print_exc()
            failed.append(batch[len(done)].name)
            done.append(batch[len(done)])
        todo = [each for each in todo if each not in done]
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return failed


def _batch(batch: Sequence[Measurement], options: argparse.Namespace, done: list[Measurement], keep: Keep) -> None:
    """Run the measurements that share a world, one after another."""
    first = batch[0]
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        if first.where is Where.CLUSTER:
            _tell_begin(first)
            keep(first.measure(None, first.name, options.pairs or first.runs))
            done.append(first)
            return
        nodes = {Where.PLANE: 0, Where.NODES: first.nodes, Where.CROWD: CROWD_NODES}[first.where]
        with raised(Path(name), kwok_nodes=math.ceil(nodes * options.scale)) as world:

            async def on_stage() -> None:
                async with AsyncExitStack() as stack:
                    stage = Stage(world, Path(name), options.scale, stack, options.tfjob_source)
                    for each in batch:
                        _tell_begin(each)
                        async with asyncio.timeout(_PATIENCE_SECONDS):
                            keep(await each.measure(stage, each.name, options.pairs or each.runs))
                        done.append(each)

            uvloop.run(on_stage())


def _tell_begin(measurement: Measurement) -> None:
    print(f"{measurement.name}: {measurement.summary} …", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
