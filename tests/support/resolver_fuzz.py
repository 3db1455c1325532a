"""Random input for the resolver: views, environments, arguments, ClusterSpecs.

For any input, the resolver must return or raise an error of its own. Each input is built from a seed and can be
repeated alone: ``python -m support.resolver_fuzz SEED NUMBER``. It runs without TensorFlow, in a process with limited
memory.
"""

from __future__ import annotations

import contextlib
import copy
import json
import os
import pickle
import random
import resource
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tfcluster_resolver import ClusterDeviceFilters, ClusterSpec, TFClusterResolver, contract
from tfcluster_resolver.errors import TFClusterError

#: Bytes of address space: enough for the libraries and a large view, not for more.
MEMORY = 768 * 2**20

GPU = "nvidia.com/gpu"
#: Maximal bytes of a view, more than a ConfigMap holds; and the length of a repeated list in it.
_LONGEST = 2 * 2**20
_MOST = 200
VIEW: dict[str, Any] = {
    "version": 1,
    "cluster": {"name": "c", "namespace": "n", "uid": "u"},
    "epoch": 4,
    "rpcLayer": "grpc",
    "jobs": {"chief": ["c0:1"], "worker": ["w0:1", "w1:1", "w2:1"], "ps": {"1": "p1:1", "3": "p3:1"}},
    "deviceFilters": {"worker": [{"tasks": [0, 4], "filters": ["/job:ps", "/job:chief"]}]},
    "accelerators": {"worker": {"limits": {GPU: 2}, "tasks": {"1": {GPU: 1}}}},
    "isolation": "Cluster",
    "leaving": {"worker": [[2, 3]]},
    "incarnations": {"worker": {"0": "a"}},
}
TEXTS = [
    *("", "worker", "chief", "ps", "evaluator", "my-worker", "w0:1", "grpc", "/job:ps", "/job:*", "0", "-1", "1"),
    *("9" * 5000, "٣", "\ud800", "\udcff", "\0", "a\nb", "é", "x" * 1000, "/", "..", "..data", "nan", "[::1]:2", "{"),
    *("None", "1,2", "GPU-a,MIG-b"),
]
NUMBERS = [
    *(0, 1, -1, 2, 3, 4, 9, 100_000, 100_001, 2**31 - 1, 2**31, 3 * 10**9, 2**63, 10**4000, -(10**4000), 0.0, 1.0),
    *(0.5, -1.5, 1e308, float("inf"), float("-inf"), float("nan")),
]


class Index:
    """An integer of another library, such as NumPy's."""

    def __init__(self, value: int) -> None:
        self._value = value

    def __index__(self) -> int:
        return self._value


class Array:
    """A value that looks like a number but is not, such as NumPy's arrays."""

    def __index__(self) -> int:
        raise TypeError("only integer scalar arrays can be converted to a scalar index")

    def __float__(self) -> float:
        raise TypeError("only length-1 arrays can be converted to Python scalars")


class Inputs:
    """Draws values."""

    def __init__(self, seed: str) -> None:
        self.random = random.Random(seed)  # noqa: S311 - no secret

    def one(self, values: Any) -> Any:
        return self.random.choice(values)

    def json(self, depth: int = 0) -> Any:
        kind = self.random.randrange(9 if depth < 3 else 6)
        if kind < 3:
            return self.one(TEXTS)
        if kind < 5:
            return self.one(NUMBERS)
        if kind == 5:
            return self.one([None, True, False, [], {}])
        many = range(self.random.randrange(4))
        if kind == 6:
            return [self.json(depth + 1) for _ in many]
        return {self.one(TEXTS): self.json(depth + 1) for _ in many}

    def value(self) -> Any:
        """Draw any value that a caller could pass."""
        kind = self.random.randrange(8)
        if kind < 5:
            return self.json()
        if kind == 5:
            return Index(self.one([0, 1, 3, -1, 10**30]))
        numbers = [10**5000, -(10**5000), 1j, Array(), range(3), {1}, iter([1]), ()]
        texts = [b"worker", b"\xff", bytearray(b"1"), Path("/nowhere")]
        ours = [ClusterSpec({"worker": ["a:1"]}), ClusterDeviceFilters()]
        return self.one([*numbers, *texts, *ours, object(), len, int, lambda: None])

    def changed(self, value: Any) -> Any:
        """Copy a JSON value and change some places in it, most often none or one."""
        value = copy.deepcopy(value)
        for _ in range(self.one([0, 0, 1, 1, 1, 2, 3, 10])):
            places = list(_places(value))
            if not places:
                return value
            inside, key = self.one(places)
            kind = self.random.randrange(6)
            if kind == 0:
                del inside[key]
            elif kind == 1 and isinstance(inside, dict):
                inside[self.one(TEXTS)] = inside.pop(key)
            elif kind == 2:
                inside[key] = self.json(1)
            elif isinstance(inside[key], str):
                inside[key] = self.one(TEXTS)
            elif isinstance(inside[key], int):
                inside[key] = self.one(NUMBERS)
            elif isinstance(inside[key], list):
                flat = not any(isinstance(one, (dict, list)) for one in inside[key])
                inside[key] = (inside[key] * self.one([0, 2, 100 if flat else 2]))[:_MOST]
            elif isinstance(inside[key], dict):
                inside[key][self.one(TEXTS)] = self.one([self.json(1), *inside[key].values()])
        return value

    def odd(self, *usual: Any) -> Any:
        """Draw what a caller should pass, and sometimes any value."""
        return self.one(usual) if self.random.random() < 0.7 else self.value()

    def text(self) -> bytes:
        """Draw the text of a view: valid, with odd parts, or damaged."""
        value = self.changed(VIEW)
        text = json.dumps(value, ensure_ascii=self.random.random() < 0.7).encode("utf-8", "surrogatepass")[:_LONGEST]
        kind = self.random.randrange(20)
        if kind < 17:
            return text
        if kind == 17:
            return text[: self.random.randrange(len(text) + 1)]
        if kind == 18:
            encoded = [b"\xef\xbb\xbf" + text, text.decode("utf-8", "replace").encode("utf-16")]
            long = b'{"version":' + b"9" * 10_000 + b"}"
            return self.one([b"", b"[" * 100_000, b"\0" * 9, long, text + text, b"{" * 2000, *encoded])
        damaged = bytearray(text)
        for _ in range(self.random.randrange(1, 6)):
            damaged[self.random.randrange(len(damaged))] = self.random.randrange(256)
        return bytes(damaged)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    if not isinstance(value, (dict, list)):
        return
    for key in list(value) if isinstance(value, dict) else range(len(value)):
        yield value, key
        yield from _places(value[key])


def exercise(resolver: TFClusterResolver, draw: Inputs) -> None:
    """Call everything on a resolver, also with odd arguments."""
    for attribute in ("task_type", "task_id", "rpc_layer", "environment", "epoch"):
        ours(getattr, resolver, attribute)
    repr(resolver)
    ours(lambda: resolver.cluster_spec().as_dict())
    ours(resolver.device_filters)
    ours(lambda: list(resolver.watch(timeout=0)))
    named = draw.one([(), (draw.odd("worker", "ps", "chief"), draw.odd(0, 1, 3))])
    ours(resolver.master, *named)
    ours(resolver.num_accelerators, *named)
    ours(resolver.master, rpc_layer=draw.odd("", "grpc"))
    ours(resolver.watch, draw.odd(0, 1.5, None))
    if (member := ours(resolver.membership)) is not None:
        named = draw.odd("worker", "ps", "chief"), draw.odd(0, 1, 3)
        for ask in (member.address_of, member.accelerators, member.device_counts):
            ours(ask, *named)
        ours(member.jobs)
        ours(lambda: list(member.tasks()))
        ours(member.device_filters)
    if draw.random.random() < 0.1:
        frozen = ours(resolver.snapshot)
        for one in (resolver, frozen):
            repr(copy.deepcopy(pickle.loads(pickle.dumps(one))))  # noqa: S301 - our own bytes
    for attribute in ("task_type", "task_id", "rpc_layer"):
        ours(setattr, resolver, attribute, draw.odd("worker", 1, None))
    ours(resolver.master)


class ForeignError(AssertionError):
    """An error that is not one of the resolver's."""


def ours(call: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """Call a function; return None for an error of the resolver's. Any other error is a finding."""
    try:
        return call(*arguments, **named)
    except TFClusterError as error:
        str(error).encode("utf-8", "backslashreplace")
        return None


@contextlib.contextmanager
def environment(**variables: str) -> Iterator[None]:
    """Set variables to texts that os.environ itself can reject: a container's values are any bytes."""
    before = os.environ
    os.environ = {**before, **variables}  # type: ignore[assignment]  # noqa: B003 - the resolver only reads it
    try:
        yield
    finally:
        os.environ = before  # noqa: B003 - likewise


def fuzz_view(draw: Inputs, folder: Path) -> None:
    """A mounted view of any content."""
    (folder / "cluster.json").write_bytes(draw.text())
    job, index = draw.one([("worker", "0"), ("ps", "1"), ("evaluator", "0"), ("worker", "7"), ("", "")])
    own = {contract.ENV_JOB: job, contract.ENV_TASK_INDEX: index, contract.ENV_ADDRESS: job and "own:1"}
    with environment(**own, TFCLUSTER_DIR=str(folder)):
        if (resolver := ours(TFClusterResolver)) is not None:
            following = ours(resolver.watch, 0)
            (folder / "cluster.json").write_bytes(draw.text())
            for _ in range(2):
                ours(next, following, None)
            exercise(resolver, draw)


def fuzz_environment(draw: Inputs, folder: Path) -> None:
    """Variables of any content, and a good view."""
    (folder / "cluster.json").write_text(json.dumps(VIEW))
    names = [contract.ENV_JOB, contract.ENV_TASK_INDEX, contract.ENV_ADDRESS]
    names += ["CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"]
    usual = dict(zip(names, ("worker", "1", "w1:1", "0,1", "GPU-a,GPU-b"), strict=True))
    variables = {name: draw.one([usual[name], usual[name], draw.one(TEXTS)]) for name in names}
    if draw.random.random() < 0.2:
        del variables[draw.one(names)]
    directory = draw.one([str(folder), str(folder), str(folder), draw.one(TEXTS)])
    with environment(**variables, TFCLUSTER_DIR=directory):
        if (resolver := ours(TFClusterResolver)) is not None:
            exercise(resolver, draw)


def fuzz_arguments(draw: Inputs, folder: Path) -> None:
    """Arguments of any type for the functions that create resolvers."""
    (folder / "cluster.json").write_text(json.dumps(VIEW))
    names = ("task_type", "task_id", "rpc_layer")
    named = {name: draw.odd("worker", 0, None) for name in names if draw.random.random() < 0.3}
    made = draw.one(
        [
            lambda: TFClusterResolver(**named, directory=draw.odd(folder, str(folder))),
            lambda: TFClusterResolver.from_file(draw.odd(folder / "cluster.json"), **named),
            lambda: TFClusterResolver.from_spec({"worker": ["w0:1"]}, **named),
        ]
    )
    if (resolver := ours(made)) is not None:
        exercise(resolver, draw)


def fuzz_spec(draw: Inputs, folder: Path) -> None:
    """ClusterSpecs and device filters as a user might write them."""
    del folder
    jobs = draw.one([draw.changed(VIEW["jobs"]), {draw.one(TEXTS): {draw.one(NUMBERS): draw.one(TEXTS)}}, draw.value()])
    odd_index = {"worker": {draw.one(NUMBERS): [draw.one(TEXTS)]}}
    odd_texts = {draw.one(TEXTS): {0: draw.one([["/job:ps"], draw.value()])}}
    filters = draw.one([None, odd_index, odd_texts, draw.value()])
    resolver = ours(TFClusterResolver.from_spec, jobs, "worker", 0, device_filters=filters)
    if resolver is not None:
        exercise(resolver, draw)


KINDS = {fuzz_view: 46, fuzz_environment: 20, fuzz_arguments: 16, fuzz_spec: 18}


def run(seed: int, numbers: range) -> Counter[str]:
    """Try inputs; return how many of each kind were tried. A ForeignError says how to repeat one."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    warnings.simplefilter("ignore")
    tried: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:  # noqa: S108, PTH112 - memory
        for number in numbers:
            draw = Inputs(f"{seed}-{number}")
            kind = draw.random.choices(list(KINDS), KINDS.values())[0]
            tried[kind.__name__] += 1
            try:
                kind(draw, Path(folder))
            except Exception as error:
                raise ForeignError(
                    f"{kind.__name__}: python -m support.resolver_fuzz {seed} {number}\n{traceback.format_exc()}"
                ) from error
    return tried


def _peak() -> int:
    """Return the peak memory of this process in bytes; getrusage() would include the parent process."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) * 1024


def main() -> None:
    """Run a number of inputs, or one alone."""
    seed, first, *last = map(int, sys.argv[1:])
    tried = run(seed, range(first, last[0] if last else first + 1))
    print(json.dumps({**tried, "peak": _peak()}))  # noqa: T201 - for the test


if __name__ == "__main__":
    main()
