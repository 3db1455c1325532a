"""Certificates, image archives and command lines of the test cluster."""

from __future__ import annotations

import hashlib
import json
import socket
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from local_kubernetes import binaries, components, node_files, node_layout, ports
from local_kubernetes.certificates import Authority, subject
from local_kubernetes.kubeconfig import write_kubeconfig
from local_kubernetes.oci_image import write_image
from local_kubernetes.progress import LocalKubernetesError

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture
def authority(tmp_path) -> Authority:
    """A new certificate authority."""
    made = Authority(tmp_path / "pki")
    made.create()
    return made


def shown(certificate: Path, *what: str) -> str:
    command = ["openssl", "x509", "-in", str(certificate), "-noout", *what]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize(
    ("user", "groups", "expected"),
    [
        pytest.param("admin", (), "/CN=admin", id="a user without groups"),
        pytest.param("u", ("g", "h"), "/O=g/O=h/CN=u", id="each group is a part of its own"),
        pytest.param("a/b+c", (), r"/CN=a\/b\+c", id="separators in a name are escaped"),
        pytest.param("a\\b", (), r"/CN=a\\b", id="a backslash is escaped"),
    ],
)
def test_certificate_subject_is_written_for_openssl(user, groups, expected):
    """User and groups become the CN and the Os of a subject."""
    assert subject(user, groups) == expected


def test_certificate_holds_user_groups_and_names(authority):
    """The openssl command reads back the user, the groups and the server names, and trusts the signature."""
    made = authority.issue(
        "x", "system:node:a/b", groups=("system:nodes",), alternative_names=("DNS:localhost", "IP:127.0.0.1")
    )

    assert "O = system:nodes, CN = system:node:a/b" in shown(made.certificate, "-subject")
    names = shown(made.certificate, "-ext", "subjectAltName,extendedKeyUsage,basicConstraints")
    for part in ("DNS:localhost, IP Address:127.0.0.1", "Client Authentication, TLS Web Server", "CA:FALSE"):
        assert part in names
    verify = ["openssl", "verify", "-CAfile", str(authority.certificate), str(made.certificate)]
    assert subprocess.run(verify, check=False, capture_output=True).returncode == 0


def test_certificate_of_a_client_serves_nothing(authority):
    """A client's certificate cannot be used by a server."""
    made = authority.issue("x", "user")

    assert "Server" not in shown(made.certificate, "-ext", "extendedKeyUsage")


def test_certificate_expiry_is_seen_ahead(authority):
    """A new authority does not end within a day, and does end within its 30 days and one."""
    assert not authority.expires_within(24 * 3600)
    assert authority.expires_within(31 * 24 * 3600)


def test_kubeconfig_is_private_and_self_contained(authority, tmp_path):
    """Only the owner reads a kubeconfig, and no other file is needed to use it."""
    client = authority.issue("x", "user")

    path = write_kubeconfig(
        tmp_path / "sub" / "kubeconfig", server="https://127.0.0.1:1", authority=authority.certificate, client=client
    )

    assert path.stat().st_mode & 0o077 == 0
    content = json.loads(path.read_text())
    assert content["clusters"][0]["cluster"]["server"] == "https://127.0.0.1:1"
    assert set(content["users"][0]["user"]) == {"client-certificate-data", "client-key-data"}


def test_image_archive_digests_are_those_of_its_blobs(tmp_path):
    """Each blob's name is its hash, and index, manifest, config and layer refer to each other by it."""
    archive = tmp_path / "image.tar"
    write_image(
        archive,
        "localhost/x:1",
        files={"bin/x": b"program"},
        links={"lib": "usr/lib"},
        folders=("usr",),
        entrypoint=("/bin/x",),
    )

    with tarfile.open(archive) as tar:
        content = {member.name: tar.extractfile(member).read() for member in tar}
    blobs = {name.removeprefix("blobs/sha256/"): data for name, data in content.items() if name.startswith("blobs/")}
    assert all(hashlib.sha256(data).hexdigest() == digest for digest, data in blobs.items())

    def follow(reference: dict) -> bytes:
        data = blobs[reference["digest"].removeprefix("sha256:")]
        assert len(data) == reference["size"]
        return data

    [entry] = json.loads(content["index.json"])["manifests"]
    assert entry["annotations"]["io.containerd.image.name"] == "localhost/x:1"
    manifest = json.loads(follow(entry))
    config = json.loads(follow(manifest["config"]))
    assert config["config"]["Entrypoint"] == ["/bin/x"]
    layer = tmp_path / "layer.tar"
    layer.write_bytes(follow(manifest["layers"][0]))
    assert config["rootfs"]["diff_ids"] == [manifest["layers"][0]["digest"]]
    with tarfile.open(layer) as tar:
        assert {member.name: (member.isdir(), member.linkname) for member in tar} == {
            "usr": (True, ""),
            "lib": (False, "usr/lib"),
            "bin/x": (False, ""),
        }
        assert tar.extractfile("bin/x").read() == b"program"


def test_apiserver_certificate_names_every_way_to_it():
    """The server is known by loopback, by the host's and the pods' address, and by its Service."""
    assert node_layout.ADDRESSES.names == (
        "DNS:localhost",
        "DNS:kubernetes",
        "DNS:kubernetes.default",
        "DNS:kubernetes.default.svc",
        "DNS:kubernetes.default.svc.cluster.local",
        "IP:127.0.0.1",
        "IP:198.18.255.2",
        "IP:198.18.254.1",
        "IP:198.19.0.1",
    )


def test_apiserver_enforces_what_careful_clusters_enforce(tmp_path):
    """RBAC and the node authorizer decide, and owner references need the right to finalizers."""
    command = components.apiserver_command(Path("hyperkube"), tmp_path, ports.loopback_addresses())

    assert "--authorization-mode=Node,RBAC" in command
    assert "--enable-admission-plugins=NodeRestriction,OwnerReferencesPermissionEnforcement" in command
    assert f"--audit-log-path={tmp_path}/audit.log" in command


def test_only_loopback_goes_without_endpoints_for_the_api_server(tmp_path):
    """Loopback addresses are invalid endpoints; the node's own are what pods need to find the server."""
    flag = "--endpoint-reconciler-type=none"
    loopback = components.apiserver_command(Path("hyperkube"), tmp_path, ports.loopback_addresses())
    node = components.apiserver_command(Path("hyperkube"), tmp_path, node_layout.ADDRESSES)

    assert flag in loopback
    assert flag not in node


def test_ports_are_free_and_different(monkeypatch):
    """A port that a program listens on is not chosen, and none is chosen twice, by this process or by another."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        taken = listener.getsockname()[1]
        monkeypatch.setattr(ports, "PORTS", range(taken, taken + 1))
        with pytest.raises(LocalKubernetesError, match="fewer than 1 free ports"):
            ports.free_ports(1)
    monkeypatch.undo()

    chosen = ports.free_ports(50)

    assert len(set(chosen)) == 50
    monkeypatch.setattr(ports, "PORTS", chosen[:5])
    with pytest.raises(LocalKubernetesError):
        ports.free_ports(1)
    program = f"from local_kubernetes import ports; ports.PORTS = {chosen[:5]}; ports.free_ports(1)"
    other = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert "LocalKubernetesError" in other.stderr


def test_kubernetes_says_its_real_version():
    """The version that go.mod asks for is stamped into both packages that report it."""
    version = binaries.kubernetes_version()
    flags = binaries._kubernetes_flags(version)

    assert version.startswith("v1.37.")
    assert f"-X k8s.io/component-base/version.gitVersion={version}" in flags[-1]
    assert f"-X k8s.io/client-go/pkg/version.gitVersion={version}" in flags[-1]


def test_staging_modules_follow_the_version_of_kubernetes():
    """Every module of Kubernetes' own tree is pinned to the release that goes with k8s.io/kubernetes."""
    text = (binaries.HYPERKUBE_SOURCE / "go.mod").read_text()
    wanted = "v0." + binaries.kubernetes_version().removeprefix("v1.")
    replaced = [line.split() for line in text.splitlines() if " => " in line]

    assert len(replaced) >= 33
    assert {(words[0] == words[2], words[3]) for words in replaced} == {(True, wanted)}


def test_kubelet_runs_pods_below_our_own_control_group(tmp_path):
    """Pods live in a control group that only this cluster uses, on machines with either version of them."""
    config = json.loads(node_files.kubelet_config(tmp_path, node_layout.NETWORK))

    assert config["cgroupRoot"] == "/tfcluster-kubernetes"
    assert config["failCgroupV1"] is False


def test_cgroup_folders_follow_the_version(tmp_path):
    """Version 2 has one tree; version 1 has one for each controller, and links between them are no trees."""
    for tree in ("cpu,cpuacct", "memory"):
        (tmp_path / "v1" / tree).mkdir(parents=True)
        (tmp_path / "v1" / tree / "cgroup.procs").touch()
    (tmp_path / "v1" / "cpu").symlink_to("cpu,cpuacct")
    (tmp_path / "v1" / "not-a-tree").mkdir()
    (tmp_path / "v2").mkdir()
    (tmp_path / "v2" / "cgroup.controllers").touch()

    assert set(node_layout._cgroup_folders(tmp_path / "v1")) == {
        tmp_path / "v1" / "cpu,cpuacct" / "tfcluster-kubernetes",
        tmp_path / "v1" / "memory" / "tfcluster-kubernetes",
    }
    assert list(node_layout._cgroup_folders(tmp_path / "v2")) == [tmp_path / "v2" / "tfcluster-kubernetes"]
