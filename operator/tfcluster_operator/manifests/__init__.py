"""Builders: values in, the object to write out; one file per kind, nothing here talks to a server."""

from tfcluster_operator.manifests.configmap import build_config_map
from tfcluster_operator.manifests.pod import build_pod
from tfcluster_operator.manifests.resolver_archive import ResolverArchive, build_resolver_config_map
from tfcluster_operator.manifests.service import build_service

__all__ = ["ResolverArchive", "build_config_map", "build_pod", "build_resolver_config_map", "build_service"]
