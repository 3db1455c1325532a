"""The API server of a local run: Kubernetes objects in memory, with the API's rules, watches and errors."""

from tfcluster.local.store.messages import Answer, Request
from tfcluster.local.store.refusals import Refusal
from tfcluster.local.store.resources import BUILT_IN, Resource, Scale, resource_of_definition
from tfcluster.local.store.server import Store
from tfcluster.local.store.state import Change

__all__ = ["BUILT_IN", "Answer", "Change", "Refusal", "Request", "Resource", "Scale", "Store", "resource_of_definition"]
