"""The archive that delivers the resolver, in real Pythons that find other copies beside it."""

from __future__ import annotations

import ast
import base64
import hashlib
import importlib.util
import io
import os
import re
import subprocess
import sys
import time
import tomllib
import zipfile
from pathlib import Path

import pytest
from support.waiting import GUARD

import tfcluster_resolver
from tfcluster_operator import resolver_sources
from tfcluster_operator.manifests import build_resolver_config_map
from tfcluster_operator.manifests.lean_source import lean_source
from tfcluster_operator.manifests.resolver_archive import LARGEST_ARCHIVE, ResolverArchive, build_archive
from tfcluster_operator.model import naming
from tfcluster_resolver import contract, copies

ROOT = Path(__file__).resolve().parent.parent.parent
SOURCES = Path(tfcluster_resolver.__file__).parent
#: Versions in their order; ours is in the middle.
OLDER = ["0.0.9", "0.1.0.dev3", "0.1.0a1", "0.1.0rc2"]
NEWER = ["0.1.0.post1", "0.1.1", "0.2", "1.0rc1", "10.0.0"]


@pytest.fixture(scope="module")
def archive() -> ResolverArchive:
    """The archive of this checkout."""
    return resolver_sources.read_archive()


@pytest.fixture
def delivered(tmp_path, archive) -> Path:
    """The archive as it lies in a pod."""
    path = tmp_path / "mounted" / "tfcluster_resolver.zip"
    path.parent.mkdir()
    path.write_bytes(archive.content)
    return path


def install(folder: Path, version: str) -> Path:
    """Make a copy of the package that says a version and does little else."""
    package = folder / "tfcluster_resolver"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(f'from typing import Final\n\n__version__: Final = "{version}"\n')
    (package / "marker.py").write_text("")
    (package / "__main__.py").write_text(f'print("the installed {version}")\n')
    return folder


def python(*words: str, path: list[Path]) -> str:
    """Run a Python that finds packages in these folders and zips alone, in their order."""
    done = subprocess.run(
        [sys.executable, "-S", *words],
        env={"PYTHONPATH": os.pathsep.join(str(one) for one in path)},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=GUARD,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


#: What can have a docstring.
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
WHICH = "import tfcluster_resolver as one; print(one.__version__, one.__file__)"


# the bytes


def test_equal_sources_make_equal_bytes(monkeypatch):
    """Neither order nor time nor time zone shows in the archive."""
    sources = {path.name: path.read_bytes() for path in SOURCES.glob("*.py")}
    first = build_archive(sources)
    backwards = dict(reversed(sources.items()))
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    monkeypatch.setattr(time, "time", lambda: 2_000_000_000.0)
    monkeypatch.setattr(sys, "platform", "win32")

    assert build_archive(backwards) == first


def test_archive_is_named_after_its_bytes(archive):
    """Any change of a source is another name; the name begins the bytes' SHA-256."""
    sources = {path.name: path.read_bytes() for path in SOURCES.glob("*.py")}
    changed = build_archive(sources | {"errors.py": sources["errors.py"] + b"\n"})

    assert archive.digest == hashlib.sha256(archive.content).hexdigest()
    assert changed.digest != build_archive(sources).digest


def test_archive_holds_every_source_and_nothing_compiled(archive):
    """Every file of the package is in the archive, but for what Python made of it and what it is made from."""
    files = [path for path in SOURCES.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    wanted = {f"bundled/tfcluster_resolver/{path.relative_to(SOURCES)}": path for path in files}

    with zipfile.ZipFile(io.BytesIO(archive.content)) as packed:
        held = {name: packed.read(name) for name in packed.namelist()}

    assert held.pop("tfcluster_resolver/__init__.py") == held["bundled/tfcluster_resolver/copies.py"]
    assert set(held) == {name for name in wanted if not name.endswith(".proto")}
    assert all(held[name] == path.read_bytes() for name, path in wanted.items() if path.suffix not in {".py", ".proto"})


def without_docstrings(source: bytes) -> str:
    """Spell a program's statements and their lines, without docstrings and types."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        for text in getattr(node, "body", ())[:1] if hasattr(node, "body") and isinstance(node.body, list) else ():
            if (
                isinstance(text, ast.Expr)
                and isinstance(text.value, ast.Constant)
                and isinstance(text.value.value, str)
            ):
                text.value.value, text.end_lineno, text.value.end_lineno = "", text.lineno, text.lineno
                text.end_col_offset = text.value.end_col_offset = text.col_offset + 2
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            node.returns = None
        if isinstance(node, ast.arg):
            node.annotation = None
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = [ast.Pass(lineno=node.lineno)]
    for node in ast.walk(tree):
        if hasattr(node, "end_lineno"):  # what ends with a docstring ends elsewhere, and indentation is less
            node.end_lineno = node.end_col_offset = node.col_offset = 0
    return ast.dump(tree, include_attributes=True)


@pytest.mark.parametrize("path", sorted(SOURCES.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCES)))
def test_module_in_the_archive_is_the_same_program(archive, path):
    """A module in the archive has every statement on the line where it is in the source, and says nothing besides."""
    with zipfile.ZipFile(io.BytesIO(archive.content)) as packed:
        held = packed.read(f"bundled/tfcluster_resolver/{path.relative_to(SOURCES)}")

    assert without_docstrings(held) == without_docstrings(path.read_bytes())
    assert held.count(b"\n") == path.read_bytes().count(b"\n")
    assert {ast.get_docstring(node) for node in ast.walk(ast.parse(held)) if isinstance(node, DOCUMENTED)} <= {None, ""}
    assert not re.search(rb"^\s*#", held, re.MULTILINE)


def test_what_looks_like_a_comment_in_a_text_stays():
    """A line of a text that begins with # is no comment; a docstring beside other statements leaves them alone."""
    source = (
        b'"""Doc\n# doc\n"""\n# gone\nx = """\n# text\n"""\n'
        b"y = f'''{x}\n    # text\n'''\ndef f(a: A, *, b: int = 1) -> x: 'doc'; return x\n"
        b"class A:\n    # gone\n    'doc'\n"
        b"    z = [\n        'a'\n        'b',\n    ]\n"
    )

    assert lean_source(source).decode().splitlines() == [
        *['""', "", "", "", 'x = """', "# text", '"""'],
        *[
            "y = f'''{x}",
            "    # text",
            "'''",
            'def f(a, *, b = 1) : ""; return x',
            "class A:",
            "",
            ' ""',
            " z = [",
            "'a'",
            "'b',",
            "]",
        ],
    ]


def test_what_tools_leave_behind_is_no_source(tmp_path):
    """Folders are walked; compiled files, also half-written ones, and an editor's are left out."""
    for name in (
        "a.py",
        "data/b.proto",
        "data/c/d.py",
        "a.pyc",
        ".a.py.swp",
        "a.py~",
        "__pycache__/a.pyc.1234",
        ".c/e.py",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)

    assert dict(resolver_sources.files_of(tmp_path)) == {
        name: name.encode() for name in ("a.py", "data/b.proto", "data/c/d.py")
    }


def test_archive_is_small(archive):
    """Every namespace has the archive in a ConfigMap, so it stays small: at most a tenth of what one takes."""
    assert len(archive.content) <= 95_000 < 2**20 / 10


def test_archive_that_grew_too_large_is_refused():
    """An archive above the bound is an error when the operator starts, not in some pod."""
    noise = os.urandom(LARGEST_ARCHIVE)

    with pytest.raises(ValueError, match="more than 200000"):
        build_archive({"copies.py": b"", "noise.bin": noise})


def test_archive_without_the_chooser_is_refused():
    """Sources that are no whole resolver make no archive."""
    with pytest.raises(ValueError, match=r"no copies\.py"):
        build_archive({"__init__.py": b""})


def test_config_map_is_immutable_and_nobodys(archive):
    """The ConfigMap is named by content, immutable, owned by no TFCluster, and holds the bytes."""
    name = f"tfcluster-resolver-{archive.digest[:32]}"

    assert build_resolver_config_map("team", archive) == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "team", "labels": naming.resolver_labels()},
        "immutable": True,
        "binaryData": {"tfcluster_resolver.zip": base64.b64encode(archive.content).decode()},
    }


# which copy runs


def test_archive_is_a_whole_resolver(delivered, tmp_path):
    """With the archive alone, a bare Python resolves, and each public name loads from the archive."""
    view = contract.View(name="c", namespace="n", uid="u", epoch=4, rpc_layer="grpc", jobs={"chief": ("c0:1",)})
    (tmp_path / "cluster.json").write_text(contract.dump(view))
    program = (
        "import tfcluster_resolver as one; [getattr(one, name) for name in one.__all__];"
        f"print(one.TFClusterResolver(directory={str(tmp_path)!r}).cluster_spec().as_dict(),"
        " one.TFClusterResolver.__module__)"
    )

    assert python("-c", program, path=[delivered]) == "{'chief': ['c0:1']} tfcluster_resolver.resolver"
    assert python("-c", WHICH, path=[delivered]).endswith(f"{delivered}/bundled/tfcluster_resolver/__init__.py")


def test_data_is_read_from_the_archive(delivered, archive):
    """Files beside the modules can be read by importlib.resources from the zip as from a folder."""
    program = (
        "import importlib.resources as r; top = r.files('tfcluster_resolver');"
        "print(sorted(one.name for one in top.iterdir() if one.is_file()), len(top.joinpath('copies.py').read_bytes()))"
    )
    with zipfile.ZipFile(io.BytesIO(archive.content)) as packed:
        prefix = "bundled/tfcluster_resolver/"
        names = sorted(n.removeprefix(prefix) for n in packed.namelist() if n.startswith(prefix))
        size = packed.getinfo(f"{prefix}copies.py").file_size

    said = python("-c", program, path=[delivered])

    assert said == f"{[n for n in names if '/' not in n]} {size}"


def test_protobuf_messages_come_from_the_archive(delivered):
    """Our protobuf messages, which are data of the package, work from the zip."""
    protobuf = pytest.importorskip("google.protobuf")
    program = (
        "from tfcluster_resolver import ClusterSpec; print(ClusterSpec({'ps': ['h:1']}).as_cluster_def().job[0].name)"
    )

    assert python("-c", program, path=[delivered, Path(protobuf.__file__).parents[2]]) == "ps"


@pytest.mark.parametrize("version", NEWER)
def test_newer_copy_of_the_image_wins(delivered, tmp_path, version):
    """A newer copy that the image brings is taken, although the archive comes first, with all of its modules."""
    image = install(tmp_path / "site-packages", version)

    said = python("-c", f"{WHICH}; import tfcluster_resolver.marker; print(one.__cached__)", path=[delivered, image])

    file = f"{image}/tfcluster_resolver/__init__.py"
    assert said.splitlines() == [f"{version} {file}", importlib.util.cache_from_source(file)]
    assert python("-m", "tfcluster_resolver", path=[delivered, image]) == f"the installed {version}"


@pytest.mark.parametrize("version", [*OLDER, "0.1.0", "0.1", "0.1.0+local", "rubbish"])
def test_older_or_equal_copy_of_the_image_does_not(delivered, tmp_path, version):
    """The archive goes before an older copy of the image, an equal one, and one whose version cannot be told."""
    image = install(tmp_path / "site-packages", version)

    said = python("-c", WHICH, path=[delivered, image])

    assert said == f"{tfcluster_resolver.__version__} {delivered}/bundled/tfcluster_resolver/__init__.py"
    assert python("-m", "tfcluster_resolver", "--version", path=[delivered, image]) == said.split()[0]


def test_newest_of_several_wins(delivered, tmp_path):
    """Of several copies the newest is taken, wherever it stands after the archive."""
    some = [install(tmp_path / name, version) for name, version in (("a", "0.2"), ("b", "0.10"), ("c", "0.9"))]

    assert python("-c", WHICH, path=[delivered, *some]).startswith("0.10 ")


def test_copy_in_front_of_the_archive_wins(delivered, tmp_path):
    """What the user put on PYTHONPATH comes first, whatever its version: that is what PYTHONPATH is for."""
    mine = install(tmp_path / "mine", "0.0.1")

    assert python("-c", WHICH, path=[mine, delivered]).startswith("0.0.1 ")


def test_archive_twice_on_the_path_is_harmless(delivered):
    """A user who names the archive too gets it."""
    assert python("-c", WHICH, path=[delivered, delivered]).startswith(tfcluster_resolver.__version__)
    assert len(copies.copies([str(delivered), str(delivered)])) == 1


def test_two_threads_import_one_whole_package(delivered, tmp_path):
    """A thread that imports the package meanwhile waits until it is whole."""
    image = install(tmp_path / "site-packages", "9.0")
    (image / "tfcluster_resolver" / "__init__.py").write_text(IMPORTED_MEANWHILE)

    assert python("-c", IMPORTS_MEANWHILE, path=[delivered, image]) == "whole"


#: Lets another thread import the package, and goes on when that one waits, or has not waited.
IMPORTED_MEANWHILE = """
import builtins, sys
__version__ = "9.0"
builtins.begun.set()
while not builtins.ended.is_set():
    frame = sys._current_frames()[builtins.other.ident]
    if (frame.f_code.co_filename, frame.f_code.co_name) == ("<frozen importlib._bootstrap>", "acquire"):
        break
late = "whole"
"""
IMPORTS_MEANWHILE = """
import builtins, threading

def other():
    try:
        builtins.begun.wait()
        from tfcluster_resolver import late
        print(late)
    finally:
        builtins.ended.set()

builtins.begun, builtins.ended = threading.Event(), threading.Event()
builtins.other = threading.Thread(target=other)
builtins.other.start()
import tfcluster_resolver
builtins.other.join()
"""


def test_chooser_leaves_nothing_behind(delivered):
    """The package from the archive has the names that it has from a folder, and no other."""
    program = "import tfcluster_resolver as one; print(sorted(vars(one)), one.__annotations__)"

    from_folder = python("-c", program, path=[SOURCES.parent])
    from_archive = python("-c", program, path=[delivered])

    assert from_archive == from_folder


def test_older_python_is_told(delivered):
    """A Python that is older than the package needs is told so, and which one would do."""
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"].removeprefix(">=")
    program = (
        "import sys; sys.version_info = (3, 8, 20)\n"
        "try:\n    import tfcluster_resolver\nexcept ImportError as error:\n    print(error)"
    )

    said = python("-c", program, path=[delivered])

    assert said.startswith(f"tfcluster_resolver needs Python {needed} or newer, and ")
    assert " is 3.8:" in said


# versions


def test_versions_sort_as_packaging_has_it():
    """Every pair of versions sorts as PEP 440 says."""
    version = pytest.importorskip("packaging.version").Version
    texts = [*OLDER, "0.1.0", *NEWER, "1!2.0", "0.1.0.post1.dev2", "1.0a2.dev1", "1.0.dev1", "1.0a2", "1.0", "1.0.0"]
    known = [text for text in texts if copies.order_of(text) is not None]
    assert set(texts) - set(known) == {"1!2.0"}

    for one in known:
        for other in known:
            assert (copies.order_of(one) < copies.order_of(other)) == (version(one) < version(other)), (one, other)


def test_our_own_version_can_be_read():
    """The chooser reads the version of this package as the package itself gives it."""
    (found,) = copies.copies([str(SOURCES.parent)])

    assert found.version == tfcluster_resolver.__version__


@pytest.mark.parametrize("text", ["", "1", "v", "one.two", "1.0-1", "1..0"])
def test_odd_versions_are_told_apart(text):
    """A text that is no version never sorts, and a short one does."""
    assert (copies.order_of(text) is not None) == (text == "1")
