"""Task processes without the seconds of TensorFlow's import: forks of a process that has imported it.

:class:`Forked` is a ``subprocess.Popen`` of Python whose process is such a fork. It gets the arguments, environment,
folder and streams of a separate interpreter, and ends as one. It does not cover the import of TensorFlow, and the
environment variables that TensorFlow reads during it: such tests use ``subprocess.Popen``.

As a program, this file is the server that forks. It ends with the process that uses it.
"""

import ctypes
import functools
import gc
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

#: Variables that TensorFlow reads during the import, so a fork can no longer change them.
ENVIRONMENT = {"TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": "-1"}
#: From <linux/prctl.h>: orphaned processes become children of the process that requests this.
_PR_SET_CHILD_SUBREAPER = 36
_LENGTH_BYTES = 4


class Forked(subprocess.Popen[str]):
    """A process of ``[sys.executable, ...]`` with a program's text after ``-c``, a module after ``-m``, or a file."""

    def _execute_child(self, args: list[str], *given: Any) -> None:
        """Request a fork from the server, where Popen forks itself."""
        _, _, _, _, folder, environment, _, _, _, *pipes = given[:15]
        stdin, _, _, stdout, _, stderr = pipes
        order = {"words": args[1:], "environment": dict(environment or os.environ), "folder": str(folder or Path.cwd())}
        content = json.dumps(order).encode()
        descriptors = [own if one == -1 else one for own, one in enumerate((stdin, stdout, stderr))]
        server = _server()
        socket.send_fds(server, [len(content).to_bytes(_LENGTH_BYTES)], descriptors)
        server.sendall(content)
        with server.makefile("rb") as answer:
            self.pid = int(answer.readline())
        self._child_created = True
        self._close_pipe_fds(*pipes)


def run(words: list[str], *, timeout: float, fresh: bool = False, **options: Any) -> subprocess.CompletedProcess[str]:
    text = options.pop("input", None)
    options |= {"stdin": None if text is None else subprocess.PIPE, "text": True}
    kind = subprocess.Popen if fresh else Forked
    with kind([sys.executable, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options) as process:
        try:
            printed = process.communicate(text, timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, *printed)


@functools.cache
def _server() -> socket.socket:
    """Start the server once, and adopt its forks: they can be awaited as any other child."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    ours, theirs = socket.socketpair()
    with theirs:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | ENVIRONMENT
        # -P, because each fork sets its own first module path.
        _server.process = subprocess.Popen(  # type: ignore[attr-defined]  # Popen warns where it is dropped
            [sys.executable, "-P", __file__], stdin=theirs, stdout=subprocess.DEVNULL, env=environment
        )
    return ours


def _serve() -> dict[str, Any]:
    """Fork for each request; returns in the forks, with the request."""
    interrupted = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the tests, which end this process
    import numpy as np
    import sklearn.model_selection  # noqa: F401 - the examples use it
    import tensorflow as tf
    from tensorflow.python.distribute.coordinator import cluster_coordinator  # noqa: F401 - TensorFlow loads it late

    assert tf.distribute.Server
    gc.freeze()  # at its end, a fork would scan all objects of TensorFlow's import: a second
    client = socket.socket(fileno=sys.stdin.fileno())
    while True:
        length, descriptors, *_ = socket.recv_fds(client, _LENGTH_BYTES, 3)
        if not length:
            os._exit(0)
        order = json.loads(client.recv(int.from_bytes(length), socket.MSG_WAITALL))
        between = os.fork()
        if between == 0:
            pid = os.fork()
            if pid == 0:
                break
            client.sendall(b"%d" % pid)
            os._exit(0)
        os.waitpid(between, 0)  # from here on the fork is a child of the tests
        client.sendall(b"\n")
        for one in descriptors:
            os.close(one)
    client.detach()  # its place is the fork's stdin
    for own, one in enumerate(descriptors):
        os.dup2(one, own)
        os.close(one)
    signal.signal(signal.SIGINT, interrupted)
    np.random.seed()  # noqa: NPY002 - each interpreter has a state of its own
    return order


def _become(words: list[str], environment: dict[str, str], folder: str) -> None:
    """Run a program as a new Python does."""
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.orig_argv = [sys.executable, *words]
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    paths = environment.get("PYTHONPATH", "").split(os.pathsep)
    kind, *rest = words
    first = {"-c": "", "-m": folder}.get(kind, str(Path(kind).parent.resolve()))
    sys.path[:0] = [first, *filter(None, paths)]
    if kind == "-m":
        sys.argv = ["-m", *rest[1:]]
        runpy._run_module_as_main(rest[0])
        return
    if kind == "-c":
        text, name = rest.pop(0), "<string>"
    else:
        text, name = Path(kind).read_text(encoding="utf-8"), kind
        main.__file__ = kind
    sys.argv = [kind, *rest]
    exec(compile(text, name, "exec"), main.__dict__)  # noqa: S102 - the program itself


if __name__ == "__main__":
    _become(**_serve())
