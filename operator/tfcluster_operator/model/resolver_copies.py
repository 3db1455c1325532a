"""The copies of the resolver in a namespace: which one can be trusted, and which one nobody needs any more.

A copy belongs to no TFCluster: all pods of the namespace mount the same.  Whoever may create a ConfigMap can take the
name of one, so a copy is judged by its bytes, never by its labels.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from tfcluster_operator.model import naming
from tfcluster_operator.model.observed import ObservedConfigMap


def is_genuine(copy: ObservedConfigMap) -> bool:
    """Tell whether a ConfigMap holds the archive that its name promises, nothing else, and for ever."""
    return copy.immutable and bool(copy.archive) and copy.meta.name == naming.resolver_name(copy.archive)


def unneeded(
    copies: Iterable[ObservedConfigMap], *, mounted: Collection[str], current: str, needed: bool
) -> list[ObservedConfigMap]:
    """Give the copies in one namespace that are to go; one that is not genuine is somebody else's work and stays."""
    kept = {*mounted, current} if needed else {*mounted}
    return [one for one in copies if one.meta.name not in kept and is_genuine(one) and not one.meta.terminating]
