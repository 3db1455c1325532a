"""The archive that delivers the resolver, in real Pythons that also have other copies."""

import base64
import hashlib
import importlib.util
import io
import os
import shutil
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest
from resolver.resolver_world import SOURCES, publish, view_of
from resolver.resolver_world import python as run_python

import tfcluster_resolver
from tfcluster_operator import resolver_sources
from tfcluster_operator.declaration import naming
from tfcluster_operator.objects.config_map import (
    LARGEST_ARCHIVE,
    ResolverArchive,
    build_archive,
    build_copy,
)
from tfcluster_resolver import copies

#: Versions in order; ours is in the middle.
OLDER = ["0.0.9", "0.1.0.dev3", "0.1.0a1", "0.1.0rc2"]
NEWER = ["0.1.0.post1", "0.1.1", "0.2", "1.0rc1", "10.0.0"]
BUNDLED = "bundled/tfcluster_resolver/"


@pytest.fixture(scope="module")
def archive() -> ResolverArchive:
    return resolver_sources.read_archive()


@pytest.fixture
def packed(archive) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(archive.content)) as opened:
        return {name: opened.read(name) for name in opened.namelist()}


@pytest.fixture
def delivered(tmp_path, archive) -> Path:
    path = tmp_path / "mounted" / "tfcluster_resolver.zip"
    path.parent.mkdir()
    path.write_bytes(archive.content)
    return path


def install(folder: Path, version: str) -> Path:
    package = folder / "tfcluster_resolver"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(f'from typing import Final\n\n__version__: Final = "{version}"\n')
    (package / "marker.py").write_text("")
    (package / "__main__.py").write_text(f'print("the installed {version}")\n')
    return folder


def python(*words: str, path: list[Path]) -> str:
    """Run a Python that finds packages only in these folders and zips, in order."""
    done = run_python("-S", *words, path=path, environment={}, cwd="/")
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


WHICH = "import tfcluster_resolver as one; print(one.__version__, one.__file__)"


# the bytes


def test_equal_sources_make_equal_bytes(monkeypatch):
    sources = {path.name: path.read_bytes() for path in SOURCES.glob("*.py")}
    first = build_archive(sources)
    backwards = dict(reversed(sources.items()))
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    monkeypatch.setattr(time, "time", lambda: 2_000_000_000.0)
    monkeypatch.setattr(sys, "platform", "win32")

    assert build_archive(backwards) == first


def test_archive_is_named_after_its_bytes(archive):
    """Any change of a source changes the name, which begins with the bytes' SHA-256."""
    sources = {path.name: path.read_bytes() for path in SOURCES.glob("*.py")}
    changed = build_archive(sources | {"errors.py": sources["errors.py"] + b"\n"})
    assert archive.digest == hashlib.sha256(archive.content).hexdigest()
    assert changed.digest != build_archive(sources).digest


def test_archive_holds_every_source_and_nothing_compiled(archive, packed):
    """Except for what the package is built with; it is small, as every namespace has it in a ConfigMap."""
    files = [path for path in SOURCES.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    wanted = {f"{BUNDLED}{path.relative_to(SOURCES)}": path for path in files}
    assert packed.pop("tfcluster_resolver/__init__.py") == packed[f"{BUNDLED}copies.py"]
    assert set(packed) == {name for name in wanted if not name.endswith(".proto")}
    assert all(packed[name] == wanted[name].read_bytes() for name in packed)
    assert len(archive.content) <= 150_000


def test_temporary_files_are_excluded_from_the_archive(tmp_path):
    kept, left_out = ["a.py", "data/b.proto", "data/c/d.py"], ["a.pyc", ".a.py.swp", "a.py~", "__pycache__/a.pyc.1234"]
    for name in (*kept, *left_out, ".c/e.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    assert dict(resolver_sources.files_of(tmp_path)) == {name: name.encode() for name in kept}


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"copies.py": b"", "noise.bin": os.urandom(LARGEST_ARCHIVE)}, "more than 200000"),
        ({"__init__.py": b""}, r"lack copies\.py"),
    ],
    ids=["too large", "no chooser"],
)
def test_unusable_archive_is_rejected(files, words):
    """The operator must fail at its start, not in some pod."""
    with pytest.raises(ValueError, match=words):
        build_archive(files)


def test_config_map_is_immutable_and_without_an_owner(archive):
    name = f"tfcluster-resolver-{archive.digest[:32]}"

    assert build_copy("team", archive) == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "team", "labels": naming.resolver_labels()},
        "immutable": True,
        "binaryData": {"tfcluster_resolver.zip": base64.b64encode(archive.content).decode()},
    }


# which copy runs


def test_archive_is_a_whole_resolver(delivered, packed, tmp_path):
    """With only the archive, a plain Python resolves, loads each name, and reads the files next to the modules."""
    publish(tmp_path, view_of({"chief": ("c0:1",)}))
    program = f"""
import importlib.resources as resources
import tfcluster_resolver as one
for name in one.__all__: getattr(one, name)
print(one.TFClusterResolver(directory={str(tmp_path)!r}).cluster_spec().as_dict(), one.TFClusterResolver.__module__)
top = resources.files("tfcluster_resolver")
print(sorted(one.name for one in top.iterdir() if one.is_file()), len(top.joinpath("copies.py").read_bytes()))
"""
    names = sorted(name.removeprefix(BUNDLED) for name in packed if name.startswith(BUNDLED))

    assert python("-c", program, path=[delivered]).splitlines() == [
        "{'chief': ['c0:1']} tfcluster_resolver.resolver",
        f"{[name for name in names if '/' not in name]} {len(packed[f'{BUNDLED}copies.py'])}",
    ]
    assert python("-c", WHICH, path=[delivered]).endswith(f"{delivered}/{BUNDLED}__init__.py")


def test_protobuf_messages_come_from_the_archive(delivered):
    protobuf = pytest.importorskip("google.protobuf")
    program = "from tfcluster_resolver import ClusterSpec; print(ClusterSpec({'a': []}).as_cluster_def().job[0].name)"
    assert python("-c", program, path=[delivered, Path(protobuf.__file__).parents[2]]) == "a"


@pytest.mark.parametrize("version", NEWER)
def test_newer_copy_of_the_image_wins(delivered, tmp_path, version):
    image = install(tmp_path / "site-packages", version)
    found = python("-c", f"{WHICH}; import tfcluster_resolver.marker; print(one.__cached__)", path=[delivered, image])
    file = f"{image}/tfcluster_resolver/__init__.py"
    assert found.splitlines() == [f"{version} {file}", importlib.util.cache_from_source(file)]
    assert python("-m", "tfcluster_resolver", path=[delivered, image]) == f"the installed {version}"


@pytest.mark.parametrize("version", [*OLDER, "0.1.0", "0.1", "0.1.0+local", "rubbish"])
def test_older_or_equal_copy_of_the_image_does_not(delivered, tmp_path, version):
    image = install(tmp_path / "site-packages", version)
    found = python("-c", WHICH, path=[delivered, image])
    assert found == f"{tfcluster_resolver.__version__} {delivered}/{BUNDLED}__init__.py"
    assert python("-m", "tfcluster_resolver", "--version", path=[delivered, image]) == found.split()[0]


def test_copy_in_front_of_the_archive_or_the_newest_wins(delivered, tmp_path):
    """The user's PYTHONPATH has priority, then the newest after the archive; the archive twice is harmless."""
    some = [install(tmp_path / name, version) for name, version in (("a", "0.2"), ("b", "0.10"), ("c", "0.9"))]
    mine = install(tmp_path / "mine", "0.0.1")
    assert python("-c", WHICH, path=[delivered, *some]).startswith("0.10 ")
    assert python("-c", WHICH, path=[mine, delivered, *some]).startswith("0.0.1 ")
    assert python("-c", WHICH, path=[delivered, delivered]).startswith(tfcluster_resolver.__version__)
    assert len(copies.copies([str(delivered), str(delivered)])) == 1


def test_two_threads_import_one_whole_package(delivered, tmp_path):
    image = install(tmp_path / "site-packages", "9.0")
    (image / "tfcluster_resolver" / "__init__.py").write_text(IMPORTED_MEANWHILE)
    assert python("-c", IMPORTS_MEANWHILE, path=[delivered, image]) == "whole"


#: Lets another thread import the package, and continues when that one waits, or has not waited.
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


def interpreter(minor: int) -> Path | str | None:
    """Return a Python 3 of this machine that starts; a command of pyenv does not always start."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    found = next(pyenv.glob(f"versions/3.{minor}.*/bin/python"), shutil.which(f"python3.{minor}"))
    if found is None or subprocess.run([found, "-S", "-c", ""], env={}, check=False, capture_output=True).returncode:
        return None
    return found


#: Imports every module, and prints which Python it is, or the error.
LOADS = """
try:
    import tfcluster_resolver
except ImportError as error:
    print(error)
else:
    import importlib, pkgutil, sys
    for module in pkgutil.walk_packages(tfcluster_resolver.__path__, "tfcluster_resolver."):
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:
            if error.name not in ("tensorflow", "google"):
                raise
    print(*sys.version_info[:2])
"""


def test_older_python_is_named(delivered):
    played = python("-c", f"import sys; sys.version_info = (3, 9, 20)\n{LOADS}", path=[delivered])
    said = {9: played} | {
        minor: subprocess.run(
            [found, "-S", "-c", LOADS], env={"PYTHONPATH": str(delivered)}, capture_output=True, text=True, check=False
        ).stdout.strip()
        for minor in range(6, 15)
        if (found := interpreter(minor)) is not None
    }
    old = {minor: words for minor, words in said.items() if minor < 10}
    assert said == {minor: f"3 {minor}" for minor in said} | old
    assert all(
        words.startswith("tfcluster_resolver needs Python 3.10 or newer, and ") and f" is 3.{minor}:" in words
        for minor, words in old.items()
    )


# versions


def test_versions_sort_as_packaging_has_it():
    """Every pair of versions sorts as in PEP 440; an invalid version never sorts, and a short one does."""
    version = pytest.importorskip("packaging.version").Version
    short = ["0.1.0.post1.dev2", "1.0a2.dev1", "1.0.dev1", "1.0a2", "1.0", "1.0.0", "1"]
    known = [*OLDER, "0.1.0", *NEWER, *short]
    for one in known:
        for other in known:
            assert (copies.order_of(one) < copies.order_of(other)) == (version(one) < version(other)), (one, other)
    assert {copies.order_of(text) for text in ("1!2.0", "", "v", "one.two", "1.0-1", "1..0")} == {None}
