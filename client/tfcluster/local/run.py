"""``tfcluster local run``: the control plane, the node and the story, from the manifest to the verdict."""

import asyncio
import logging
import os
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tfcluster.errors import ExitCode, ManifestError, TFClusterError
from tfcluster.local import manifest, session
from tfcluster.local.addresses import HOST, Addresses, Ports
from tfcluster.local.environment import PathMapping, Surroundings
from tfcluster.local.node import Node
from tfcluster.local.plane import control_plane, kubeconfig, served
from tfcluster.local.store import Refusal, Store
from tfcluster.local.story import Story
from tfcluster.tasks import verdict
from tfcluster_operator.declaration import naming
from tfcluster_resolver import contract

#: The grace period of programs after Ctrl-C, in seconds.
_PATIENCE: Final = 10.0
_FORGET_EVERY: Final = 60.0
#: The revisions that are kept for watches; a client that is further behind must list again.
_REVISIONS_KEPT: Final = 1000


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a run."""

    objects: Sequence[manifest.Object]
    name: str
    python: Path
    mapped: Sequence[PathMapping] = ()
    entry_points: Mapping[str, Sequence[str]] = field(default_factory=dict)
    timeout: float | None = None
    quiet: bool = False

    @property
    def clusters(self) -> list[manifest.Object]:
        return manifest.clusters_of(self.objects)


def run(options: Options) -> int:
    try:
        with session.begin(options.name) as own:
            _log_to(own.folder / "operator.log")
            return asyncio.run(_Run(options, own).play())
    except OSError as error:
        raise TFClusterError(
            f"the run cannot continue: {error}",
            hint=f"Its state is in {session.states()}: see whether the disk is full, or set XDG_STATE_HOME.",
        ) from error


def _log_to(path: Path) -> None:
    """Write the engine's log to a file, so that it does not disturb the output."""
    root = logging.getLogger()
    for handler in tuple(root.handlers):
        root.removeHandler(handler)
    logging.raiseExceptions = False  # an error of the log itself must not disturb it either
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root.addHandler(handler)
    root.setLevel(logging.INFO)


class _Run:
    """One run."""

    def __init__(self, options: Options, own: session.Session) -> None:
        self._options = options
        self._session = own
        self._addresses = Addresses(Ports())
        self._names = [one["metadata"]["name"] for one in options.clusters]
        self._story = Story(
            self._names,
            self._address_of,
            broken=lambda: self._signals.put_nowait(signal.SIGPIPE),
            python=str(options.python),
            quiet=options.quiet,
        )
        self._signals: asyncio.Queue[int] = asyncio.Queue()
        self._looked = asyncio.Event()
        self._surroundings = Surroundings(
            folder=own.folder,
            python=options.python,
            addresses=self._addresses,
            mapped=options.mapped,
            entry_points=options.entry_points,
            heard=self._hear,
            notice=self._story.once,
        )

    async def play(self) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._signals.put_nowait, number)
        namespaces = sorted({one["metadata"]["namespace"] for one in self._options.objects} | {manifest.NAMESPACE})
        store = self._store = Store(time.time, served(), namespaces=namespaces)
        node = self._node = Node(store, self._surroundings)
        async with control_plane(store, node.log_of) as (server, parts):
            store.subscribers.append(lambda _: self._looked.set())
            store.subscribers.append(self._story.change)
            self._introduce()
            self._create(store)
            text = kubeconfig(server.url, server.token, self._options.clusters[0]["metadata"]["namespace"])
            session.tell(self._session, text, pid=os.getpid(), began=time.time(), clusters=self._names)
            forgetting = asyncio.create_task(_forget(store))
            try:
                code = await self._until_over(parts)
                for claim in self._session.claims:
                    delete = f"`tfcluster local delete {self._session.name}` deletes it"
                    self._story.say(f"volume {claim.name} stays in {claim}; {delete}")
            finally:
                forgetting.cancel()
                self._story.end()
                # The operator is stopped first, because it would replace the ended pods.
                for part in parts:
                    part.cancel()
                await self._end(node)
            return code

    def _introduce(self) -> None:
        """Print once how a local run differs from a cluster."""
        story, options = self._story, self._options
        for body in options.clusters:
            jobs = ", ".join(f"{name} {job.get('replicas', 1)}" for name, job in body["spec"]["jobs"].items())
            story.say(f"{body['metadata']['name']} on this machine: {jobs}; Ctrl-C ends it")
        if left := manifest.unplayed(options.clusters):
            story.say(f"not supported locally, ignored: {', '.join(left)}")
        for one in options.mapped:
            story.say(f"{one.there} is {one.here}")
        for claim in self._session.claims:
            story.say(f"volume {claim.name} has files of an earlier run: {claim}")
        only = "" if len(session.running()) == 1 else f" --session {self._session.name}"
        story.say(f"look at it from another terminal: tfcluster status --local{only}")

    def _address_of(self, pod: Mapping[str, Any]) -> str:
        for entry in pod["spec"]["containers"][0].get("env") or ():
            if entry["name"] == contract.ENV_ADDRESS and (port := self._addresses.local_port(entry["value"])):
                return f"{HOST}:{port}"
        return ""

    def _create(self, store: Store) -> None:
        problems = []
        for body in self._options.objects:
            kind, name = body["kind"], body["metadata"]["name"]
            plural = naming.PLURAL if kind == naming.KIND else manifest.SERVED[kind][1]
            try:
                store.create(plural, body["metadata"]["namespace"], body, user="local-user")
            except Refusal as refusal:
                problems.append(f"{kind} {name}: {refusal}")
        if problems:
            raise ManifestError("the manifest is rejected", problems)

    async def _until_over(self, parts: Sequence[asyncio.Task[None]]) -> int:
        waits: dict[str, asyncio.Task[Any]] = {
            "verdict": asyncio.create_task(self._verdict(self._store)),
            "signal": asyncio.create_task(self._signals.get()),
        }
        if self._options.timeout:
            waits["timeout"] = asyncio.create_task(asyncio.sleep(self._options.timeout))
        done, _ = await asyncio.wait({*waits.values(), *parts}, return_when=asyncio.FIRST_COMPLETED)
        try:
            if waits["verdict"] in done:
                return int(waits["verdict"].result())
            if waits["signal"] in done:
                number = signal.Signals(waits["signal"].result())
                self._story.say(f"{number.name}: stopping; press Ctrl-C again to kill")
                return ExitCode.INTERRUPTED if number is signal.SIGINT else 128 + number
            if "timeout" in waits and waits["timeout"] in done:
                self._story.say(f"not over after {self._options.timeout:g} s", colour="red")
                return ExitCode.TIMED_OUT
        finally:
            for task in waits.values():
                task.cancel()
        part = next(one for one in parts if one in done)
        error = part.exception() if not part.cancelled() else None
        self._story.say(f"the {part.get_name()} died: {error}", colour="red")
        return ExitCode.FAILED

    async def _verdict(self, store: Store) -> int:
        """Wait until every TFCluster has succeeded, failed or been deleted; a deleted one keeps its verdict."""
        verdicts: dict[str, str] = {}
        names: dict[str, str] = {}
        while True:
            self._looked.clear()
            clusters = store.list(naming.PLURAL)
            here = {one["metadata"]["uid"] for one in clusters}
            for uid in verdicts.keys() - here:
                verdicts[uid] = verdicts[uid] or "was deleted before its end"
            for one in clusters:
                uid = one["metadata"]["uid"]
                names[uid], verdicts[uid] = one["metadata"]["name"], verdict(one)
            if all(verdicts.values()):
                failed = not all(words.startswith("succeeded") for words in verdicts.values())
                told = "; ".join(f"{names[uid]} {words}" for uid, words in verdicts.items())
                self._story.say(told, colour="red" if failed else "green")
                return ExitCode.FAILED if failed else ExitCode.OK
            await self._looked.wait()

    async def _end(self, node: Node) -> None:
        """End all programs; another signal ends the grace period."""
        ending = asyncio.create_task(node.stop(_PATIENCE))
        hurrying = asyncio.create_task(self._signals.get())
        await asyncio.wait([ending, hurrying], return_when=asyncio.FIRST_COMPLETED)
        hurrying.cancel()
        if not ending.done():
            await node.stop(0.0)
        await ending

    def _hear(self, namespace: str, pod: str, container: str, line: bytes) -> None:
        several = self._node.containers_of(namespace, pod) > 1
        self._story.line(pod, container if several else "", line)


async def _forget(store: Store) -> None:
    """Drop old revisions: a run can last for days, and otherwise every status ever written would be kept."""
    while True:
        await asyncio.sleep(_FORGET_EVERY)
        store.compact(store.revision - _REVISIONS_KEPT)
