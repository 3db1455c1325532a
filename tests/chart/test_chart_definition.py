"""The CRD in the life of releases: installed, upgraded, kept, and never taken from another release."""

import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from on_server import CRD, FOREIGN, HOME, OnServer, forget_definition
from rendering import CHART, ROOT, Helm, look, read_yaml, the_only
from support.control_planes import await_served
from support.guide import snippets
from support.manifests import tfcluster
from support.objects import CRDS, TFCLUSTERS, Objects
from support.rbac import bind, grant
from support.waiting import eventually
from value_sets import MINIMAL

PATH = ("files", "tfcluster.yaml")


@pytest.fixture(autouse=True)
def unknown(server: Objects) -> None:
    forget_definition(server)


def chart_with(short_name: str, folder: Path) -> Path:
    """Copy the chart, and change the short name in its CRD."""
    chart = shutil.copytree(CHART, folder)
    path = chart.joinpath(*PATH)
    text = path.read_text(encoding="utf-8")
    assert "shortNames:\n    - tfc\n" in text
    path.write_text(text.replace("    - tfc\n", f"    - {short_name}\n"), encoding="utf-8")
    return chart


@pytest.fixture
def newer(tmp_path: Path) -> Path:
    return chart_with("tfnew", tmp_path / "newer")


def short_names(server: Objects) -> list[str]:
    return server.get(CRDS, "", CRD)["spec"]["names"]["shortNames"]


def uid_of_the_definition(server: Objects) -> str:
    return server.get(CRDS, "", CRD)["metadata"]["uid"]


def store_a_cluster(server: Objects, name: str = "stays", **replicas: int) -> str:
    body = tfcluster(name)
    for job, count in (replicas or {"worker": 1}).items():
        body.job(job, replicas=count)
    await_served(server, TFCLUSTERS)
    return server.create(TFCLUSTERS, HOME, body.build())["metadata"]["uid"]


def hand_over(kubectl: Callable[..., str], notes: str) -> None:
    """Follow the notes of a release that give it the CRD."""
    commands = [line.strip() for line in notes.splitlines() if line.strip().startswith("kubectl") and " crd " in line]
    assert len(commands) == 2
    for command in commands:
        kubectl(*shlex.split(command)[1:])


def test_chart_contains_the_crd(helm: Helm):
    (definition,) = read_yaml((ROOT / "crds" / "tfcluster.yaml").read_text(encoding="utf-8"))
    rendered = the_only(helm.render({"crds": {}}), "CustomResourceDefinition")
    assert {**rendered, "metadata": {}} == {**definition, "metadata": {}}
    assert rendered["metadata"]["name"] == CRD
    assert rendered["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}


def test_chart_without_the_crd_file_fails_with_a_remedy(helm: Helm, tmp_path: Path):
    """Flux leaves symbolic links out of its packages of a Git repository."""
    chart = tmp_path / "chart"
    shutil.copytree(CHART, chart, ignore=shutil.ignore_patterns("tfcluster.yaml"))
    answer = helm.run("template", "r", chart)
    assert (answer.returncode != 0, "set crds.enabled to false" in answer.stderr) == (True, True)
    assert helm.run("template", "r", chart, values={"crds": {"enabled": False}}).returncode == 0


def test_definition_lives_through_upgrade_rollback_and_uninstallation(
    server: Objects, install, on_server: OnServer, newer: Path
):
    release = install({})
    uid, definition = store_a_cluster(server), uid_of_the_definition(server)
    assert short_names(server) == ["tfc"]
    on_server("upgrade", release, newer)
    assert short_names(server) == ["tfnew"]
    on_server("rollback", release)
    assert short_names(server) == ["tfc"]
    on_server("uninstall", release)
    assert uid_of_the_definition(server) == definition
    # Installed again, the release has the CRD again.
    on_server("install", release, newer)
    assert short_names(server) == ["tfnew"]
    assert uid_of_the_definition(server) == definition
    assert server.get(TFCLUSTERS, HOME, "stays")["metadata"]["uid"] == uid


@pytest.mark.exhaustive
def test_upgrade_chooses_the_scaled_job(server: Objects, install, on_server: OnServer, kubectl: Callable[..., str]):
    release = install({})
    store_a_cluster(server, "served", worker=2, trainer=3)

    def served() -> int:
        return server.get(TFCLUSTERS, HOME, "served", "scale")["spec"]["replicas"]

    def declared() -> dict[str, int]:
        jobs = server.get(TFCLUSTERS, HOME, "served")["spec"]["jobs"]
        return {name: job["replicas"] for name, job in jobs.items()}

    on_server("upgrade", release, CHART, values={"crds": {"scaledJob": "trainer"}})
    eventually(served, lambda replicas: replicas == 3, what="/scale serves the trainers")
    kubectl("scale", "tfcluster/served", "--replicas=5", "-n", HOME)
    assert declared() == {"worker": 2, "trainer": 5}
    on_server("upgrade", release, CHART, "--reset-then-reuse-values", values={"logLevel": "debug"})
    assert served() == 5
    on_server("rollback", release, "1")
    eventually(served, lambda replicas: replicas == 2, what="/scale serves the workers")
    kubectl("scale", "tfcluster/served", "--replicas=1", "-n", HOME)
    assert declared() == {"worker": 1, "trainer": 5}


def follow(place: str, on_server: OnServer, kubectl: Callable[..., str], release: str, chart: Path) -> None:
    """Follow docs/operate/upgrading.md for this release and this chart."""
    found = [snippet for snippet in snippets(ROOT / "docs" / "operate" / "upgrading.md") if snippet.place == place]
    assert found, f"the guide has no snippet {place}"
    for command, _ in (told for snippet in found for told in snippet.commands()):
        program, *arguments = shlex.split(
            command.replace(" --wait", "")
            .replace(" --namespace tfcluster-system", "")
            .replace("charts/tfcluster-operator", str(chart))
            .replace("crds/tfcluster.yaml", str(chart.joinpath(*PATH)))
        )
        arguments = [release if argument == "tfcluster" else argument for argument in arguments]
        {"helm": on_server, "kubectl": kubectl}[program](*arguments)


@pytest.mark.exhaustive
def test_downgrade_keeps_the_newer_definition(server: Objects, install, on_server: OnServer, kubectl, newer: Path):
    release = install({})
    on_server("upgrade", release, newer)
    follow("back", on_server, kubectl, release, newer)
    follow("again", on_server, kubectl, release, newer)
    assert short_names(server) == ["tfnew"]
    follow("won", on_server, kubectl, release, CHART)
    assert short_names(server) == ["tfc"]
    on_server("upgrade", release, newer)
    on_server("rollback", release)
    assert short_names(server) == ["tfc"]
    follow("again", on_server, kubectl, release, newer)
    on_server("rollback", release, "--force-conflicts")
    assert short_names(server) == ["tfnew"]
    on_server("rollback", release, "--force-conflicts")
    assert short_names(server) == ["tfc"]


@pytest.mark.exhaustive
def test_definition_that_kubectl_has_applied_can_be_taken_on(
    server: Objects, on_server: OnServer, kubectl, newer: Path
):
    """A release leaves it alone; with the commands of its notes, the release then owns the CRD."""
    kubectl("apply", "-f", ROOT / "crds" / "tfcluster.yaml")
    uid = uid_of_the_definition(server)
    on_server("install", "taken-on", newer)
    notes = on_server("get", "notes", "taken-on")
    assert "it is not part of a release" in notes
    assert short_names(server) == ["tfc"]
    hand_over(kubectl, notes)
    # Kubectl owns the fields: the notes say how to take them over.
    assert "--force-conflicts" in notes
    on_server("upgrade", "taken-on", newer, "--force-conflicts")
    assert short_names(server) == ["tfnew"]
    on_server("uninstall", "taken-on")
    assert uid_of_the_definition(server) == uid


@pytest.mark.exhaustive
def test_definition_of_another_release_is_left_alone(server: Objects, install, on_server: OnServer, kubectl, newer):
    first = install({})
    uid = uid_of_the_definition(server)
    on_server("install", "second", newer, namespace=FOREIGN)
    notes = on_server("get", "notes", "second", namespace=FOREIGN)
    assert f"it is release {first} in namespace home" in notes
    on_server("upgrade", first, CHART, values={"logLevel": "debug"})
    assert short_names(server) == ["tfc"]
    hand_over(kubectl, notes)
    on_server("upgrade", first, CHART)
    on_server("uninstall", first)
    assert uid_of_the_definition(server) == uid
    on_server("upgrade", "second", newer, namespace=FOREIGN, values={"logLevel": "debug"})
    assert short_names(server) == ["tfnew"]
    on_server("uninstall", "second", namespace=FOREIGN)


@pytest.mark.exhaustive
def test_definition_can_go_with_the_release(server: Objects, install, on_server: OnServer):
    release = install({"crds": {"keep": False}})
    assert "EVERY TFCluster" in on_server("get", "notes", release)
    on_server("uninstall", release)
    eventually(lambda: server.get(CRDS, "", CRD), lambda found: found is None, what="the definition is gone")


@pytest.mark.exhaustive
def test_release_can_leave_the_crd_to_another_owner(server: Objects, install, on_server: OnServer):
    release = install({})
    definition = uid_of_the_definition(server)
    on_server("upgrade", release, CHART, values={"crds": {"enabled": False, "scaledJob": "trainer"}})
    notes = on_server("get", "notes", release)
    assert "crds.enabled=false" in notes
    assert "crds.scaledJob=trainer has NO EFFECT" in notes
    assert uid_of_the_definition(server) == definition


@pytest.mark.exhaustive
def test_administrator_of_a_namespace_can_install(server: Objects, helm: Helm, bare_server):
    bind(server, "tenant", HOME, "ClusterRole", "admin")
    # Users cannot grant permissions that they do not have: here, for TFClusters and for the Lease.
    rights = [*look(helm.render(MINIMAL), "Role:r-tfcluster-operator.rules")]
    rights.append({"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["*"]})
    grant(server, "tenant", HOME, rights)
    place = ("--kubeconfig", bare_server.kubeconfig_for("tenant"), "--namespace", HOME)
    for command in (("install", "own", CHART), ("upgrade", "own", CHART), ("uninstall", "own")):
        answer = helm.run(*command, *place, values=None if "uninstall" in command else MINIMAL)
        assert answer.returncode == 0, answer.stderr
