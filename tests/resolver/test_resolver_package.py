"""The package as a whole: its imports and names, its messages, its page of docs, and TensorFlow next to it."""

import importlib.resources
import inspect
import os
import sys

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool
from resolver.resolver_world import ROOT, python

import tfcluster_resolver
from scripts import protos
from tfcluster_resolver import ClusterSpec, TFClusterResolver, _protobuf


def loaded_by(program: str, flag: str = "-S") -> set[str]:
    """Return the modules that a fresh Python has loaded after a program; -S leaves site-packages out."""
    program = f"{program}\nimport sys\nprint(*sys.modules)"
    done = python(flag, "-c", program, environment={"PATH": os.environ["PATH"]})
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


@pytest.mark.parametrize("name", tfcluster_resolver.__all__)
def test_names_load_the_standard_library_only(name):
    allowed = {*sys.stdlib_module_names, "tfcluster_resolver", "__main__"}
    assert {module.partition(".")[0] for module in loaded_by(f"from tfcluster_resolver import {name}")} <= allowed


BOTH = "from tfcluster_resolver import ClusterSpec, ClusterDeviceFilters; "
SETS_FILTERS = f"{BOTH}ClusterDeviceFilters().set_device_filters('w', 0, ['/job:ps'])"


@pytest.mark.parametrize(
    ("program", "loaded"),
    [
        (f"{BOTH}ClusterSpec(ClusterSpec({{'w': ['a:1']}})).as_dict()", False),
        (SETS_FILTERS, False),
        ("from tfcluster_resolver import _protobuf", False),
        (f"{BOTH}ClusterSpec({{}}).as_cluster_def()", True),
    ],
)
def test_protobuf_is_loaded_when_it_is_needed(program, loaded):
    assert ("google" in loaded_by(program, "-I")) == loaded


def test_package_has_types_and_a_signature():
    """Tools get the resolver's arguments; type checkers read annotations only if a package declares them (PEP 561)."""
    signature = "(task_type: 'str | None' = None, task_id: 'int | None' = None, rpc_layer: 'str | None' = None, *, dir"
    assert str(inspect.signature(TFClusterResolver)).startswith(signature)
    assert importlib.resources.files(tfcluster_resolver).joinpath("py.typed").is_file()


def test_package_loads_no_module_of_its_own():
    """Each name is loaded when it is used; ``errors`` is available for an ``except`` clause after a plain import."""
    caught = "import tfcluster_resolver as t\ntry:\n    raise t.errors.ViewError\nexcept t.errors.TFClusterError: pass"
    assert not [name for name in loaded_by("import tfcluster_resolver") if name.startswith("tfcluster_resolver.")]
    assert "tfcluster_resolver.errors" in loaded_by(caught)


def test_visible_names_are_the_public_ones():
    assert dir(tfcluster_resolver) == sorted(tfcluster_resolver.__all__)
    assert all(getattr(tfcluster_resolver, name) is not None for name in tfcluster_resolver.__all__)
    with pytest.raises(AttributeError, match="nothing_like_it"):
        tfcluster_resolver.nothing_like_it  # noqa: B018 - the look-up is the test


# the protobuf messages, generated from .proto files, loaded when needed


MESSAGES = _protobuf.messages("a test")


def test_descriptor_set_is_that_of_the_sources():
    """The checked-in descriptor set is the compiler's output for the .proto files: `python -m scripts.protos`."""
    made = descriptor_pb2.FileDescriptorSet.FromString(protos.compile_protos())

    assert descriptor_pb2.FileDescriptorSet.FromString(protos.DESCRIPTOR_SET.read_bytes()) == made
    assert {file.name for file in made.file} == {path.name for path in protos.PROTOS.glob("*.proto")}
    assert {file.package for file in made.file} == {"tensorflow"}


def test_messages_are_built_once_in_a_private_pool():
    """TensorFlow registers its own of the same names in protobuf's default pool; ours of two calls can be compared."""
    assert _protobuf.messages("another test") == MESSAGES
    assert type(ClusterSpec({}).as_cluster_def()) is MESSAGES.ClusterDef
    assert MESSAGES.ClusterDef.DESCRIPTOR.full_name == "tensorflow.ClusterDef"
    with pytest.raises(KeyError):
        descriptor_pool.Default().FindMessageTypeByName("tensorflow.ClusterDef")


@pytest.mark.parametrize(
    ("version", "words"), [(None, "needs protobuf, which"), ("3.20.3", "needs protobuf 4.22 or newer")]
)
def test_protobuf_that_is_missing_or_old_is_a_named_error(tmp_path, version, words):
    if version is not None:
        package = tmp_path / "google" / "protobuf"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(f'__version__ = "{version}"\n')
        (package / "message_factory.py").write_text("")
    program = """
from tfcluster_resolver import ClusterDeviceFilters, ClusterSpec, errors
for ask in (ClusterSpec({}).as_cluster_def, ClusterDeviceFilters().as_cluster_device_filters):
    try:
        ask()
    except errors.ProtobufNotFoundError as error:
        print(isinstance(error, ImportError), error)
"""
    said = python("-S", "-c", program, path=[ROOT / "resolver", tmp_path], environment={}).stdout.splitlines()
    assert [line.partition(words)[0] for line in said] == [
        "True as_cluster_def() ",
        "True as_cluster_device_filters() ",
    ]
    assert all("`pip install " in line and (version or "") in line for line in said)


# the resolver becomes TensorFlow's, with a fake TensorFlow; tests/tensorflow has the real one


#: As in TensorFlow: an abstract base class, and a public name that exists only at the end of the import.
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
    def run(program: str, tensorflow: str | None = TENSORFLOW) -> list[str]:
        (tmp_path / "tensorflow").mkdir(exist_ok=True)
        if tensorflow is not None:
            (tmp_path / "tensorflow" / "__init__.py").write_text(tensorflow)
        done = python("-S", "-c", program, path=[ROOT / "resolver", tmp_path], environment={}, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    return run


@pytest.mark.parametrize(
    "program",
    [OURS + MADE + THEIRS + ASKED, THEIRS + OURS + MADE + ASKED, OURS + THEIRS + MADE + ASKED],
    ids=["resolver, TensorFlow", "TensorFlow, resolver", "class, TensorFlow, resolver"],
)
def test_resolver_is_tensorflows_in_any_order(run, program):
    assert run(program + TOLD + FINDERS) == ["True True False", ""]


def test_check_before_does_not_stay(run):
    """TensorFlow's class caches negative results: a check during the import must not affect later ones."""
    early = TENSORFLOW + "import builtins\nbuiltins.early = isinstance(builtins.made, ClusterResolver)\n"
    program = OURS + "import builtins\nbuiltins." + MADE + THEIRS + ASKED + "print(early)\n" + TOLD
    assert run(program, early) == ["False", "True True False"]


def test_import_that_is_barred_stays_barred(run):
    program = "import sys\nsys.modules['tensorflow'] = None\n" + OURS + MADE + "print(made.cluster_spec().as_dict())"
    assert run(program) == ["{'worker': ['a:1']}"]


@pytest.mark.parametrize(
    ("end", "ask", "told"),
    [
        ("raise ImportError('libcudart is missing')", "print(made.epoch)", "0"),
        (TENSORFLOW, THEIRS + ASKED + TOLD, "True True False"),
    ],
    ids=["fails", "ends well"],
)
def test_import_in_another_thread_does_no_harm(run, end, ask, told):
    """Our import, which waits for TensorFlow's in another thread, continues if that one fails, completely."""
    slow = "import builtins\nbuiltins.begun.set()\nbuiltins.ended.wait(1)\n"
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
"""
    assert run(program + MADE + ask, slow + end) == [told]


def test_import_that_fails_can_be_tried_again(run):
    program = OURS + MADE + "import os\nos.environ['BROKEN'] = '1'\n"
    program += "try:\n    import tensorflow\nexcept ImportError as error:\n    print(error)\n"
    program += "del os.environ['BROKEN']\n" + FINDERS + THEIRS + ASKED + TOLD + FINDERS
    assert run(program) == ["libcudart is missing", "_Finder", "True True False", ""]


RELOADS = """
import importlib, tfcluster_resolver.resolver as one
TFClusterResolver = importlib.reload(one).TFClusterResolver
"""
LOADS_ANEW = """
import sys
for name in [name for name in sys.modules if name.startswith("tfcluster_resolver")]:
    del sys.modules[name]
"""


@pytest.mark.parametrize("again", [RELOADS, LOADS_ANEW + OURS], ids=["reloaded", "dropped"])
def test_module_can_be_loaded_twice(run, again):
    """As with IPython's autoreload, and in tests; each of the classes is TensorFlow's."""
    first = OURS + MADE + "first = made\n"
    told = "print(isinstance(first, base))\n"
    assert run(first + again + MADE + THEIRS + ASKED + TOLD + told + FINDERS) == ["True True False", "True", ""]


@pytest.mark.parametrize("tensorflow", ["", "distribute = None\n", None], ids=["empty", "half", "a folder"])
def test_foreign_module_named_tensorflow_is_ignored(run, tensorflow):
    assert run(OURS + MADE + THEIRS + "print(tf.__name__, made.master('worker', 0))", tensorflow) == [
        "tensorflow grpc://a:1"
    ]
