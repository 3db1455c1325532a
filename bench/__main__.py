"""``python -m bench``: how fast the operator is, beside a bare client, in one run on one control plane.

It measures and prints; it judges nothing (the exit status is 0 whatever the figures are).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import uvloop

from bench import creation, living, node, report
from bench.shapes import Shape
from bench.world import ROOT, World, raised

SHAPES = (Shape(1, 100), Shape(1, 300), Shape(100, 2), Shape(1, 2000))
QUICK_SHAPES = (Shape(1, 100), Shape(20, 2))
Told = Callable[[str], None]


def main() -> int:
    """Measure what the command line asks for and print the tables.

    Returns:
        0.
    """
    options = _options()
    sections: list[str] = []

    def tell(section: str) -> None:
        print(section, flush=True)
        sections.append(section)

    tell(_heading(options))
    if not options.only_node:
        with tempfile.TemporaryDirectory(prefix="bench-") as name, raised(Path(name)) as world:
            uvloop.run(_on_the_control_plane(world, options, Path(name), tell))
    if options.node or options.only_node:
        figures = node.measure(runs=2 if options.quick else max(options.runs, 5))
        tell("## Delivery of a changed view to running pods\n\n" + report.delivery(figures))
    if options.write:
        (ROOT / "docs" / "benchmarks.md").write_text("\n".join(sections), encoding="utf-8")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two runs of small shapes, 10 s of steady state")
    parser.add_argument("--runs", type=int, default=0, help="runs of each measurement (default 5, quick 2)")
    parser.add_argument(
        "--shape", type=_shape, action="append", help="create only this, such as 100x2; may be repeated"
    )
    parser.add_argument("--node", action="store_true", help="measure delivery on the cluster of .local/kubeconfig, too")
    parser.add_argument("--only-node", action="store_true", help="measure nothing but delivery")
    parser.add_argument("--write", action="store_true", help="write the tables to docs/benchmarks.md")
    options = parser.parse_args()
    options.runs = options.runs or (2 if options.quick else 5)
    return options


def _shape(text: str) -> Shape:
    clusters, _, tasks = text.partition("x")
    return Shape(int(clusters), int(tasks))


def _heading(options: argparse.Namespace) -> str:
    return (
        "# Benchmarks\n\n"
        f"`python -m bench{''.join(f' {word}' for word in sys.argv[1:])}` on {datetime.now(UTC):%Y-%m-%d}: "
        f"{report.machine()}.  Kubernetes control plane, operator and clients share the machine.\n"
        f"Figures are minimum / median / maximum of {options.runs} runs; (a) and (b) take turns.\n"
    )


async def _on_the_control_plane(world: World, options: argparse.Namespace, directory: Path, tell: Told) -> None:
    measured = []
    for shape in options.shape or (QUICK_SHAPES if options.quick else SHAPES):
        print(f"measuring {shape} …", file=sys.stderr, flush=True)
        measured.append(await creation.measure(world, shape, runs=options.runs, directory=directory))
    tell(
        "## Creation, from the TFCluster's POST until all objects exist\n\n"
        "(a) is a bare aiohttp client that POSTs the same bodies with the best of 16, 32 and 64 requests at once; "
        "both are timed by the same independent watch.\n\n" + report.creations(measured)
    )
    tell("## What creation costs\n\n" + report.costs(measured) + "\n" + report.calls_line(measured))
    if options.shape:
        return
    print("measuring suspend, delete and steady state …", file=sys.stderr, flush=True)
    figures = await living.measure(
        world,
        runs=options.runs,
        idle_seconds=10.0 if options.quick else 60.0,
        concurrency=measured[-1].concurrency,
    )
    tell("## A cluster that exists\n\n" + report.living(figures))


if __name__ == "__main__":
    sys.exit(main())
