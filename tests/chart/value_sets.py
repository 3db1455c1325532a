"""Sets of values for rendering, installing and linting the chart: the default, everything, the least."""

from typing import Final

from on_server import HOME, WATCHED
from rendering import Object

DEFAULT: Final[Object] = {}
#: Each set must work on a cluster without further preparation.
EVERYTHING: Final[Object] = {
    "image": {
        "registry": "registry.example:5000",
        "repository": "team/operator",
        "tag": "v1",
        "digest": f"sha256:{'ab' * 32}",
        "pullPolicy": "Always",
    },
    "imagePullSecrets": [{"name": "key"}],
    "replicas": 3,
    "watchNamespaces": [HOME, WATCHED],
    "leaderElection": {"createLease": True},
    "logLevel": "debug",
    "logFormat": "json",
    "defaultIsolation": "DeviceFilters",
    "gangs": {"scheduler": "SchedulerPlugins", "schedulerName": "default-scheduler"},
    "extraArgs": ["--log-level=info"],
    "extraEnv": [
        {"name": "PYTHONASYNCIODEBUG", "value": "1"},
        {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
    ],
    "extraVolumes": [{"name": "scratch", "emptyDir": {"sizeLimit": "1Mi"}}],
    "extraVolumeMounts": [{"name": "scratch", "mountPath": "/tmp"}],  # noqa: S108 - a path in a container
    "livenessProbe": {"initialDelaySeconds": 5, "periodSeconds": 30, "timeoutSeconds": 10, "failureThreshold": 5},
    "readinessProbe": {"initialDelaySeconds": 1, "periodSeconds": 3, "timeoutSeconds": 4, "failureThreshold": 2},
    "serviceAccount": {"name": "robot", "annotations": {"a": "b"}},
    "networkPolicy": {
        "enabled": True,
        "apiServer": {"cidrs": ["10.0.0.1/32", "fd00::/64"], "ports": [6443]},
        "dnsPorts": [53, 5353],
        "metricsFrom": [{"namespaceSelector": {"matchLabels": {"a": "b"}}, "podSelector": {}}],
        "extraIngress": [{"ports": [{"protocol": "TCP", "port": 9090}]}],
        "extraEgress": [{"to": [{"ipBlock": {"cidr": "10.1.0.0/16"}}]}],
    },
    # The kinds of the monitors and the rules exist only on a cluster with the Prometheus Operator.
    "metrics": {"dashboard": {"enabled": True, "labels": {"team": "vision"}, "annotations": {"folder": "training"}}},
    "resources": {"requests": {"cpu": 1}, "limits": {"cpu": "1500m"}},
    "podSecurityContext": {"runAsUser": 1000690000, "runAsGroup": 0, "fsGroup": 1000690000},
    "containerSecurityContext": {"runAsNonRoot": True},
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}],
    "affinity": {"podAntiAffinity": {}},
    "topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule"}
    ],
    "priorityClassName": "system-cluster-critical",
    "podAnnotations": {"a.example/b": "c"},
    "podLabels": {"team": "vision"},
    "fullnameOverride": "trainer",
    "commonLabels": {"cost-center": "42"},
}
#: For a user with permissions in one namespace only.
MINIMAL: Final[Object] = {
    "clusterWide": False,
    "replicas": 1,
    "crds": {"enabled": False},
    "admissionPolicy": {"enabled": False},
    "aggregateRoles": False,
}
