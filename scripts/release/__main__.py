"""``make release``, ``make publish`` and their parts."""

import argparse
import hashlib
import shutil
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from local_kubernetes import binaries
from scripts import images
from scripts.release import bill, chart, image, packages, source, tools

_SUMS: Final = "SHA256SUMS"
#: The names and digests in the registry after `publish`, for the workflow that signs them.
_PUBLISHED: Final = "published"


def build(options: argparse.Namespace) -> None:
    """Build every file of a release."""
    folder: Path = options.folder
    version, epoch = source.version(), source.epoch()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    images.tell(f"making the files of release {version} in {folder}")
    packages.build(folder, epoch=epoch)
    packed = chart.package(folder, image=options.image, version=version, epoch=epoch)
    (folder / "install.yaml").write_text(chart.install_manifest(packed, version=version), encoding="utf-8")
    bill.of_distribution(folder / f"tfcluster-{version}.cdx.json", version=version, epoch=epoch)
    if options.architectures:
        images.tell(f"building the image for {', '.join(options.architectures)}")
        image.build(folder, image=options.image, version=version, epoch=epoch, architectures=options.architectures)
    files = sorted(path for path in folder.iterdir() if path.name != _SUMS)
    (folder / _SUMS).write_text("".join(f"{_digest(path)}  {path.name}\n" for path in files), encoding="utf-8")
    images.tell((folder / _SUMS).read_text())


def publish(options: argparse.Namespace) -> None:
    """Copy the image and the chart of a release to their registries, and record their digests."""
    version, folder = source.version(), options.folder
    plain = ["--dest-tls-verify=false"] if options.plain_http else []
    pushed = image.push(folder / image.archive_name(version), image=options.image, version=version, options=plain)
    command = [binaries.helm(), "push", folder / f"{chart.CHART.name}-{version}.tgz", options.charts]
    if options.plain_http:
        command.append("--plain-http")
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    said = done.stdout + done.stderr
    digest = next(line.removeprefix("Digest: ") for line in said.splitlines() if line.startswith("Digest: "))
    name = f"{options.charts.removeprefix('oci://')}/{chart.CHART.name}"
    lines = {"image": pushed, "chart": f"{name}@{digest}"}
    for key, value in list(lines.items()):
        lines[f"{key}-name"], _, lines[f"{key}-digest"] = value.partition("@")
    (folder / _PUBLISHED).write_text("".join(f"{key}={lines[key]}\n" for key in sorted(lines)), encoding="utf-8")
    images.tell(f"published {pushed} and {lines['chart']}")


def check(options: argparse.Namespace) -> None:
    """Reject a tag that does not match this version, and print the version's notes."""
    source.refuse_unready(options.tag)
    sys.stdout.write(source.notes())


def write_changelog(options: argparse.Namespace) -> None:
    """Move the fragments of changelog.d into CHANGELOG.md, or print the result."""
    version, day = source.version(), datetime.fromtimestamp(source.epoch(), UTC).date().isoformat()
    how = ["--draft"] if options.draft else ["--yes"]
    what = ["--version", version, "--date", "unreleased" if options.draft else day]
    sys.stdout.write(tools.run_module("towncrier", ["build", *how, *what]))


def main(arguments: Sequence[str]) -> int:
    """Run one command."""
    parser = argparse.ArgumentParser(prog="python -m scripts.release", description=__doc__)
    commands = parser.add_subparsers(required=True)
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--folder", type=Path, default=images.ROOT / "dist", help="where the files are (default dist)")
    shared.add_argument("--image", default=images.OPERATOR.name, help="the image's name, without a tag")
    one = commands.add_parser("build", parents=[shared], help="make every file of a release")
    one.add_argument("--architectures", nargs="*", default=[], help="build the image for these, such as amd64 arm64")
    one.set_defaults(run=build)
    one = commands.add_parser("publish", parents=[shared], help="push the image and the chart to their registries")
    one.add_argument("--charts", required=True, help="the registry's folder of charts, such as oci://ghcr.io/me/charts")
    one.add_argument("--plain-http", action="store_true", help="the registry has no TLS")
    one.set_defaults(run=publish)
    one = commands.add_parser("check", help="say whether a tag can be released, and print its notes")
    one.add_argument("tag", help="such as v0.1.0")
    one.set_defaults(run=check)
    one = commands.add_parser("changelog", help="move the fragments of changelog.d into CHANGELOG.md")
    one.add_argument("--draft", action="store_true", help="print them, and change nothing")
    one.set_defaults(run=write_changelog)
    options = parser.parse_args(arguments)
    try:
        options.run(options)
    except source.ReleaseError as error:
        images.tell(str(error))
        return 1
    return 0


def _digest(path: Path) -> str:
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
