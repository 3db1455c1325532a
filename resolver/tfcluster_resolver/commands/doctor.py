"""``doctor``: what a task needs, check by check, with a verdict and what to do.

It decides the order of the checks and what is printed, for people or as JSON; what a check looks at is in ``checks``,
and in ``network_checks`` where it asks the network.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from tfcluster_resolver import contract, errors
from tfcluster_resolver.cluster import Membership, own_task
from tfcluster_resolver.commands import checks, exit_codes, network_checks
from tfcluster_resolver.commands.checks import Check, Verdict
from tfcluster_resolver.commands.command import Command, add_json, add_timeout, say
from tfcluster_resolver.views.file import ReadView, ViewFile

#: What the checks of a cluster are called, for the case that there is no view to check.
_OF_A_VIEW: Final = ("view", "own name", "own port", "peers", "accelerators", "tensorflow")
#: Seconds that the other tasks get to accept a connection.
_TIMEOUT: Final = 5.0


def diagnose(directory: str, *, timeout: float) -> list[Check]:
    """Check what this task needs.

    Returns:
        The checks in the order in which they build on each other; a check that another's failure makes senseless is
        skipped.
    """
    return list(_diagnose(directory, timeout))


def failed(found: Sequence[Check]) -> bool:
    """Tell whether a check failed."""
    return any(check.verdict is Verdict.FAILED for check in found)


def as_json(found: Sequence[Check]) -> str:
    """Spell checks for programs.

    Returns:
        A JSON object: ``verdict`` (the worst) and ``checks``, each with ``name``, ``verdict``, ``message`` and
        ``remedy`` (empty where nothing is wrong).
    """
    document = {
        "verdict": worst(found).value,
        "checks": [
            {"name": one.name, "verdict": one.verdict.value, "message": one.message, "remedy": one.remedy}
            for one in found
        ],
    }
    return json.dumps(document, indent=2)


def as_text(found: Sequence[Check]) -> str:
    """Spell checks for people."""
    width = max((len(check.name) for check in found), default=0)
    return "\n".join(
        f"{check.verdict.value:8} {check.name:{width}}  {check.message}" + (f". {check.remedy}" if check.remedy else "")
        for check in found
    )


def worst(found: Sequence[Check]) -> Verdict:
    """Give the worst verdict; a skipped check does not count."""
    verdicts = {check.verdict for check in found}
    return next((one for one in (Verdict.FAILED, Verdict.WARNING) if one in verdicts), Verdict.OK)


def _diagnose(directory: str, timeout: float) -> Iterator[Check]:
    yield checks.package(sys.path)
    try:
        own = own_task(os.environ)
    except errors.TaskIdentityError as error:
        yield Check("task", Verdict.FAILED, str(error), "Look at the env of this container in the pod")
        yield from _skipped(_OF_A_VIEW, "it is not known which task this is")
        return
    yield checks.task(own)
    try:
        read = ViewFile(directory, own.index if own is not None else None).read()
    except errors.ViewError as error:
        yield Check(
            "view",
            Verdict.FAILED,
            str(error),
            f"Is the volume of {contract.DEFAULT_DIRECTORY} mounted in this container?",
        )
        yield from _skipped(_OF_A_VIEW[1:], "there is no view")
        return
    yield from _of_a_view(Membership(view=read.view, own=own), read, directory, timeout)


def _of_a_view(membership: Membership, read: ReadView, directory: str, timeout: float) -> Iterator[Check]:
    yield checks.view(membership, read.path, directory)
    if (told := checks.tf_config(membership, os.environ)) is not None:
        yield told
    asked: tuple[tuple[str, Callable[[], Iterator[Check]]], ...] = (
        ("own name", lambda: iter([network_checks.own_name(membership, timeout)])),
        ("own port", lambda: iter([network_checks.own_port(membership)])),
        ("peers", lambda: network_checks.peers(membership, timeout)),
        ("accelerators", lambda: iter([checks.accelerators(membership)])),
        ("tensorflow", lambda: iter([checks.tensorflow(directory)])),
    )
    for name, ask in asked:
        try:
            yield from ask()
        except errors.AddressError as error:
            yield Check(name, Verdict.FAILED, str(error), "The operator writes addresses: who else edits this?")


def _skipped(names: Sequence[str], why: str) -> Iterator[Check]:
    for name in names:
        yield Check(name, Verdict.SKIPPED, why)


def _run(options: argparse.Namespace) -> int:
    found = diagnose(options.directory, timeout=options.timeout)
    say(as_json(found) if options.json else as_text(found))
    return exit_codes.CHECK_FAILED if failed(found) else exit_codes.DONE


def _add_options(parser: argparse.ArgumentParser) -> None:
    add_json(parser)
    add_timeout(parser, _TIMEOUT, "how long the other tasks may take to accept a connection")


DOCTOR: Final = Command(
    brief="check what a task needs, and say what to do",
    description="Check the package, the view, the own name and port, the other tasks, the accelerators and TensorFlow: "
    "one line each with a verdict (ok, warning, failed, skipped) and what to do.",
    codes=(exit_codes.CHECK_FAILED,),
    success="no check failed; there may be warnings",
    add_options=_add_options,
    run=_run,
)
