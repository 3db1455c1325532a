"""The files of a release: the same bytes from the same sources, and each works on its own."""

import hashlib
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml
from release_world import EPOCH, IMAGE, ROOT, build_release, copy_tree

pytestmark = pytest.mark.exhaustive


def contents(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def read_chart(package: Path) -> dict[str, str]:
    with tarfile.open(package) as tar:
        return {
            m.name.removeprefix("tfcluster-operator/"): tar.extractfile(m).read().decode() for m in tar.getmembers()
        }


@pytest.fixture(scope="module")
def clean_venv(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clean") / "venv"
    uv = [sys.executable, "-m", "uv"]
    subprocess.run([*uv, "venv", "--quiet", "--python", sys.executable, folder], check=True)

    def install(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        command = [*uv, "pip", "install", "--python", folder / "bin" / "python", *arguments]
        return subprocess.run(command, check=False, capture_output=True, text=True, timeout=250)

    install.python = lambda *arguments: subprocess.run(
        [folder / "bin" / "python", "-I", *arguments], check=False, capture_output=True, text=True, timeout=60
    )
    return install


def test_another_place_gives_the_same_bytes(release, tmp_path):
    """Another folder, umask, time zone, language and hash seed, files of another age and mode: the same files."""
    checkout = copy_tree(tmp_path / "elsewhere")
    for path in checkout.rglob("*"):
        os.utime(path, (1_500_000_000, 1_500_000_000))
        path.chmod(0o700 if path.is_dir() else 0o600)
    (checkout / "left-over.txt").write_text("somebody's notes")

    other = build_release(
        checkout, tmp_path / "dist", umask=0o077, TZ="Pacific/Auckland", LC_ALL="C", PYTHONHASHSEED="7"
    )

    assert contents(other) == contents(release)


def test_every_file_is_there_and_has_its_sum(release, version):
    done = subprocess.run(
        ["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=release, check=False, capture_output=True
    )

    assert done.returncode == 0, done.stderr
    assert sorted(contents(release)) == sorted(
        [
            "SHA256SUMS",
            "install.yaml",
            f"tfcluster-{version}-py3-none-any.whl",
            f"tfcluster-{version}.cdx.json",
            f"tfcluster-{version}.tar.gz",
            f"tfcluster-operator-{version}.tgz",
        ]
    )
    assert len((release / "SHA256SUMS").read_text().splitlines()) == 5


def test_sources_build_the_same_wheel(release, version, tmp_path):
    with tarfile.open(release / f"tfcluster-{version}.tar.gz") as tar:
        tar.extractall(tmp_path, filter="data")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path / "dist"],
        cwd=tmp_path / f"tfcluster-{version}",
        env=os.environ | {"SOURCE_DATE_EPOCH": str(EPOCH)},
        check=True,
        capture_output=True,
    )

    wheel = f"tfcluster-{version}-py3-none-any.whl"
    assert contents(tmp_path / "dist")[wheel] == contents(release)[wheel]


def test_wheel_says_that_it_has_types(release, version):
    """Type checkers use the annotations of the resolver and of the client only with a marker (PEP 561)."""
    with zipfile.ZipFile(release / f"tfcluster-{version}-py3-none-any.whl") as wheel:
        assert {"tfcluster/py.typed", "tfcluster_resolver/py.typed"} <= set(wheel.namelist())


def test_wheel_gives_the_resolver_without_a_dependency(release, version, clean_venv):
    """``pip install tfcluster`` needs no index; the resolver works, and the operator says which extra it lacks."""
    done = clean_venv("--offline", "--no-index", release / f"tfcluster-{version}-py3-none-any.whl")
    assert done.returncode == 0, done.stderr
    assert re.findall(r"^ \+ (\S+?)(?:==|@)", done.stderr, re.MULTILINE) == ["tfcluster"]

    program = "import tfcluster_resolver as t; print(t.__version__, t.ClusterSpec({'w': ['a:1']}).as_dict())"
    assert clean_venv.python("-c", program).stdout == f"{version} {{'w': ['a:1']}}\n"
    assert clean_venv.python("-m", "tfcluster_resolver", "--help").returncode == 0


def test_extra_operator_runs_the_operator(release, version, clean_venv):
    wheel = release / f"tfcluster-{version}-py3-none-any.whl"
    done = clean_venv(
        "--constraints", ROOT / "requirements" / "operator.txt", f"tfcluster[operator] @ {wheel.as_uri()}"
    )
    assert done.returncode == 0, done.stderr

    assert clean_venv.python("-m", "tfcluster_operator", "--version").stdout == f"tfcluster-operator {version}\n"
    assert "--all-namespaces" in clean_venv.python("-m", "tfcluster_operator", "--help").stdout


@pytest.mark.parametrize(("extra", "package"), [("tensorflow", "tensorflow"), ("kubernetes", "kubernetes")])
def test_extras_resolve(release, version, clean_venv, extra, package):
    wheel = release / f"tfcluster-{version}-py3-none-any.whl"
    done = clean_venv("--dry-run", f"tfcluster[{extra}] @ {wheel.as_uri()}")

    assert done.returncode == 0, done.stderr
    assert f" + {package}==" in done.stderr


def test_chart_has_the_version():
    from scripts.release import source

    chart = yaml.safe_load((ROOT / "charts" / "tfcluster-operator" / "Chart.yaml").read_text())

    assert (chart["version"], chart["appVersion"]) == (source.version(), source.version())


def test_packaged_chart_differs_in_its_image_alone(release, version):
    packed = read_chart(release / f"tfcluster-operator-{version}.tgz")
    source = ROOT / "charts" / "tfcluster-operator"
    compared = {name for name in packed if name != "Chart.yaml" and (source / name).is_file()}

    assert {name for name in compared if packed[name] != (source / name).read_text()} == {"values.yaml"}
    before, after = (text.splitlines() for text in ((source / "values.yaml").read_text(), packed["values.yaml"]))
    changed = [line.strip() for line in after if line not in before]
    assert "".join(line.split(": ")[1] + "/" for line in changed).strip("/") == IMAGE
    assert yaml.safe_load(packed["Chart.yaml"]) == yaml.safe_load((source / "Chart.yaml").read_text())


def test_image_is_written_where_the_values_have_a_registry():
    """Values with a key for the registry get both parts; comments, order and other fields stay."""
    from scripts.release.chart import with_image

    values = "# one\nimage: # two\n  tag: ''\n  repository: \"a/b\" # three\n  registry: ''\nreplicas: 2\n"

    assert with_image(values, "ghcr.io/me/op") == (
        "# one\nimage: # two\n  tag: ''\n  repository: me/op # three\n  registry: ghcr.io\nreplicas: 2\n"
    )


def test_bill_of_materials_is_the_lock(release, version):
    import json

    from scripts.release import tools

    path = release / f"tfcluster-{version}.cdx.json"
    found = {c["name"]: c["version"] for c in json.loads(path.read_text())["components"]}
    lock = (ROOT / "requirements" / "operator.txt").read_text()
    validate = (
        "import sys; from cyclonedx.schema import SchemaVersion;"
        "from cyclonedx.validation.json import JsonStrictValidator;"
        "print(JsonStrictValidator(SchemaVersion.V1_6).validate_str(open(sys.argv[1]).read()))"
    )

    assert found == dict(re.findall(r"^([\w.-]+)==(\S+)", lock, re.MULTILINE))
    done = subprocess.run(
        [tools.python_tools() / "python", "-c", validate, path], check=False, capture_output=True, text=True
    )
    assert (done.stdout, done.returncode) == ("None\n", 0), done.stderr
