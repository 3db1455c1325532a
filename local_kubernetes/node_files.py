"""Configuration files of the programs of the one-node cluster. Pure: it returns texts and does not write them."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NODE_NAME = "node-1"
CGROUP = "tfcluster-kubernetes"
"""The control group that holds all pods, so that a clean-up never meets anyone else's."""


@dataclass(frozen=True, slots=True)
class Network:
    """Addresses of the node, all of RFC 2544's range for tests, which is not routed."""

    node: str = "198.18.254.1"
    """The node's address, where CoreDNS listens too."""
    pods: str = "198.18.0.0/24"
    services: str = "198.19.0.0/24"
    host_end: str = "198.18.255.1"
    """The machine's end of the cable into the node."""
    node_end: str = "198.18.255.2"
    """The node's end: where the machine reaches the API server."""


def containerd_config(state: Path, *, sandbox_image: str, plugins: Path, snapshotter: str) -> str:
    """Return containerd's configuration, in the version that 1.6 and 2.x read."""
    return f"""\
version = 2
root = "{state}/containerd"
state = "/run/containerd"

[grpc]
address = "{state}/containerd.sock"

[plugins."io.containerd.internal.v1.opt"]
path = "{state}/containerd-opt"

[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{sandbox_image}"
stream_server_address = "127.0.0.1"
disable_apparmor = true
# Without CAP_SYS_RESOURCE runc may not lower the score, and dies of it.
restrict_oom_score_adj = true

[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{plugins}"
conf_dir = "{state}/cni"

[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "{snapshotter}"
default_runtime_name = "runc"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
options = {{ SystemdCgroup = false }}
"""


def cni_config(network: Network) -> str:
    """Return the pod network: a bridge without masquerading, because pods cannot reach outside networks."""
    addresses = {
        "type": "host-local",
        "dataDir": "/run/cni-addresses",
        "ranges": [[{"subnet": network.pods}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    bridge = {"type": "bridge", "bridge": "cni0", "isGateway": True, "ipMasq": False, "hairpinMode": True}
    plugins = [{**bridge, "ipam": addresses}, {"type": "portmap", "capabilities": {"portMappings": True}}]
    return json.dumps({"cniVersion": "1.0.0", "name": "pods", "plugins": plugins}, indent=2)


def kubelet_config(state: Path, network: Network) -> str:
    """Return the kubelet's configuration."""
    pki = state / "control-plane" / "pki"
    return _document(
        "kubelet.config.k8s.io/v1beta1",
        "KubeletConfiguration",
        containerRuntimeEndpoint=f"unix://{state}/containerd.sock",
        address="0.0.0.0",  # noqa: S104 - of the node's own network namespace
        authentication={
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": f"{pki}/ca.crt"},
        },
        authorization={"mode": "Webhook"},
        tlsCertFile=f"{pki}/{NODE_NAME}.crt",
        tlsPrivateKeyFile=f"{pki}/{NODE_NAME}.key",
        clusterDomain="cluster.local",
        clusterDNS=[network.node],
        resolvConf=f"{state}/resolv.conf",
        cgroupDriver="cgroupfs",
        cgroupRoot=f"/{CGROUP}",
        failCgroupV1=False,  # machines with the first version of control groups are common still
        failSwapOn=False,
        enforceNodeAllocatable=["pods"],
        # A developer's disk is often nearly full; a test cluster must not evict its pods because of that.
        evictionHard={"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        imageGCHighThresholdPercent=100,  # never: an image that was loaded by hand cannot be pulled again
        nodeStatusUpdateFrequency="1s",  # a device's change of health shows in the node's allocatable that soon
        nodeStatusReportFrequency="5m",  # otherwise it would follow the line above
        maxPods=250,
        serializeImagePulls=False,
    )


def kube_proxy_config(state: Path, network: Network) -> str:
    """Return kube-proxy's configuration."""
    return _document(
        "kubeproxy.config.k8s.io/v1alpha1",
        "KubeProxyConfiguration",
        mode="iptables",
        iptables={"minSyncPeriod": "100ms"},  # tests wait for every change
        clientConnection={"kubeconfig": f"{state}/control-plane/kubeconfigs/kube-proxy"},
        hostnameOverride=NODE_NAME,
        bindAddress=network.node,
        healthzBindAddress="127.0.0.1:10256",
        metricsBindAddress="127.0.0.1:10249",
        conntrack={"maxPerCore": 0, "min": 0},  # these limits belong to the machine
        detectLocalMode="ClusterCIDR",
        clusterCIDR=network.pods,
    )


def corefile(state: Path, network: Network) -> str:
    """Return CoreDNS's configuration: only the cluster's names, without caching."""
    listen = f"bind {network.node} {network.node_end}\n    errors"
    return f"""\
cluster.local {{
    {listen}
    ready {network.node_end}:8181
    kubernetes {{
        kubeconfig {state}/control-plane/kubeconfigs/coredns
        pods insecure
        ttl 0
    }}
}}
. {{
    {listen}
    template ANY ANY {{
        rcode NXDOMAIN
    }}
}}
"""


def _document(api_version: str, kind: str, **fields: Any) -> str:
    return json.dumps({"apiVersion": api_version, "kind": kind, **fields}, indent=2)
