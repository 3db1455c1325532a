"""How the resolver becomes TensorFlow's ClusterResolver, by a package that plays TensorFlow's part.

tests/tensorflow has the same with TensorFlow itself.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.waiting import GUARD

ROOT = Path(__file__).resolve().parent.parent.parent
#: As TensorFlow has it: an abstract base class, and a public name that is there at the end of the import only.
TENSORFLOW = """
import abc, os, types
class ClusterResolver(abc.ABC):
    pass
if os.environ.get("BROKEN"):
    raise ImportError("libcudart is missing")
distribute = types.SimpleNamespace(cluster_resolver=types.SimpleNamespace(ClusterResolver=ClusterResolver))
"""
OURS = "from tfcluster_resolver import TFClusterResolver\n"
THEIRS = "import tensorflow as tf\n"
MADE = "made = TFClusterResolver.from_spec({'worker': ['a:1']})\n"
ASKED = "base = tf.distribute.cluster_resolver.ClusterResolver\n"
TOLD = "print(isinstance(made, base), issubclass(TFClusterResolver, base), isinstance(object(), base))\n"
FINDERS = "import sys; print(*(type(one).__name__ for one in sys.meta_path if 'tfcluster' in type(one).__module__))\n"


@pytest.fixture
def run(tmp_path):
    """Runs a program in a Python of its own that finds this TensorFlow."""

    def run(program: str, tensorflow: str | None = TENSORFLOW) -> list[str]:
        (tmp_path / "tensorflow").mkdir(exist_ok=True)
        if tensorflow is not None:
            (tmp_path / "tensorflow" / "__init__.py").write_text(tensorflow)
        done = subprocess.run(
            [sys.executable, "-S", "-c", program],
            env={"PYTHONPATH": os.pathsep.join([str(ROOT / "resolver"), str(tmp_path)])},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=GUARD,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    return run


@pytest.mark.parametrize(
    "program",
    [OURS + MADE + THEIRS + ASKED, THEIRS + OURS + MADE + ASKED, OURS + THEIRS + MADE + ASKED],
    ids=["resolver, TensorFlow", "TensorFlow, resolver", "class, TensorFlow, resolver"],
)
def test_resolver_is_tensorflows_in_any_order(run, program):
    """Instances and the class are TensorFlow's, whatever was first; nothing of ours listens to imports any more."""
    assert run(program + TOLD + FINDERS) == ["True True False", ""]


def test_check_before_does_not_stay(run):
    """TensorFlow's class remembers whom it refused: who asked too early, during the import, is right later."""
    early = TENSORFLOW + "import builtins\nbuiltins.early = isinstance(builtins.made, ClusterResolver)\n"
    program = OURS + "import builtins\nbuiltins." + MADE + THEIRS + ASKED + "print(early)\n" + TOLD

    assert run(program, early) == ["False", "True True False"]


def test_import_that_is_barred_stays_barred(run):
    """Where a program bars TensorFlow, as tests do, the resolver is imported and works without it."""
    program = "import sys\nsys.modules['tensorflow'] = None\n" + OURS + MADE + "print(made.cluster_spec().as_dict())"

    assert run(program) == ["{'worker': ['a:1']}"]


def test_import_that_fails_in_another_thread_harms_nobody(run):
    """Our import, which waits for TensorFlow's in another thread, goes on where that one fails."""
    broken = "import builtins\nbuiltins.begun.set()\nbuiltins.ended.wait(1)\nraise ImportError('libcudart is missing')"
    program = """
import builtins, contextlib, threading
builtins.begun, builtins.ended = threading.Event(), threading.Event()
def other():
    with contextlib.suppress(ImportError):
        import tensorflow
thread = threading.Thread(target=other)
thread.start()
builtins.begun.wait()
from tfcluster_resolver import TFClusterResolver
builtins.ended.set()
thread.join()
print(TFClusterResolver.__name__)
"""
    assert run(program, broken) == ["TFClusterResolver"]


def test_import_that_fails_can_be_tried_again(run):
    """A TensorFlow that cannot be imported raises what it always does, and counts when it can."""
    program = OURS + MADE + "import os\nos.environ['BROKEN'] = '1'\n"
    program += "try:\n    import tensorflow\nexcept ImportError as error:\n    print(error)\n"
    program += "del os.environ['BROKEN']\n" + FINDERS + THEIRS + ASKED + TOLD + FINDERS

    assert run(program) == ["libcudart is missing", "_Finder", "True True False", ""]


@pytest.mark.parametrize("tensorflow", ["", "distribute = None\n", None], ids=["empty", "half", "a folder"])
def test_what_is_no_tensorflow_is_left_alone(run, tensorflow):
    """Another module of that name is imported as ever, and so is a folder without code."""
    assert run(OURS + MADE + THEIRS + "print(tf.__name__, made.master('worker', 0))", tensorflow) == [
        "tensorflow grpc://a:1"
    ]


def test_other_finders_see_the_import_too(run):
    """A tool that hooks into imports, before us or after us, goes on working."""
    hook = """
import sys
class Tool:
    def find_spec(self, name, path=None, target=None):
        if name == "tensorflow":
            print("seen")
"""
    after, before = "sys.meta_path.append(Tool())\n", "sys.meta_path.insert(0, Tool())\n"

    assert run(hook + OURS + before + MADE + THEIRS + ASKED + TOLD) == ["seen", "True True False"]
    assert run(hook + "sys.meta_path.insert(0, Tool())\n" + OURS + MADE + THEIRS + ASKED + TOLD) == [
        "seen",
        "True True False",
    ]
    assert run(hook + after + OURS + MADE + THEIRS + ASKED + TOLD)[-1] == "True True False"


def test_source_of_tensorflow_can_be_read(run):
    """The loader is as it was: tools that read a module's source by it can."""
    program = OURS + THEIRS + "import inspect; print(inspect.getsource(tf.ClusterResolver).splitlines()[0])\n"
    program += "print('exec_module' in vars(tf.__loader__))\n"

    assert run(program) == ["class ClusterResolver(abc.ABC):", "False"]
