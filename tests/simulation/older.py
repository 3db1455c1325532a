"""Objects as an older operator left them: made by version 6ef3058 and committed, never made again by a newer one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from simulation import dialect

if TYPE_CHECKING:
    from simulation.world import World

_KEPT: Final = Path(__file__).parent / "older" / "6ef3058.json"
_KINDS: Final = ("services", "configmaps", "pods")
#: What the API server sets itself.
_SERVERS: Final = ("resourceVersion", "generation", "creationTimestamp", "managedFields")


def keep(world: World) -> None:
    """Write what there is into the file.

    It was called once, with the operator of 6ef3058: a chief, a ps and two workers, of which one had failed and was
    made again.  Afterwards the resolver's archive was cut short and its digest changed, as another version's differs.
    """
    found = {kind: world.kube.list(kind, dialect.NAMESPACE) for kind in ("tfclusters", *_KINDS)}
    _KEPT.parent.mkdir(exist_ok=True)
    _KEPT.write_text(json.dumps(found, indent=1) + "\n")


def restore(world: World) -> None:
    """Make the objects again, as they were."""
    told: dict[str, Any] = json.loads(_KEPT.read_text())
    old = told["tfclusters"][0]
    made = world.kube.create("tfclusters", dialect.NAMESPACE, _bare(old), user="restore")
    uid = made["metadata"]["uid"]
    # NB: views name the cluster's UID, and pods were told of a view by its digest: another UID is another view.
    assert uid == old["metadata"]["uid"], "the API server counts UIDs otherwise: the objects are not as they were"
    world.kube.patch(
        "tfclusters",
        dialect.NAMESPACE,
        dialect.CLUSTER,
        {"status": old["status"]},
        subresource="status",
        user="restore",
    )
    for kind in _KINDS:
        for one in told[kind]:
            world.kube.create(kind, dialect.NAMESPACE, _bare(one), user="restore")
            if kind == "pods":
                world.nodes.take_over(one)
    world.truth.look()
    world.truth.restore(uid, old["status"])


def is_untouched(world: World) -> bool:
    """Tell whether the operator has made no pod yet: it takes over those that it finds."""
    made = (one for one in world.kube.history if one.type == "ADDED" and one.resource == "pods")
    return all(world.moments[one.revision].user == "restore" for one in made)


def _bare(body: dict[str, Any]) -> dict[str, Any]:
    metadata = {name: value for name, value in body["metadata"].items() if name not in (*_SERVERS, "uid")}
    return {**{name: value for name, value in body.items() if name != "status"}, "metadata": metadata}
