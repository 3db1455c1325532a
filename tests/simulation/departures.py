"""The oracle of leaving tasks: tasks that can finish during their drain must be marked in the views."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from simulation import dialect

_SURPLUS_SINCE = "tfcluster.dev/surplus-since"


def untold(history: Sequence[Any]) -> Iterator[str]:
    """Return the revisions with a draining pod or a leaving task that the views do not mark.

    A view that could not be published because the API server rejected it is of an older epoch and is ignored.
    """
    generations: dict[str, int] = {}
    views: dict[str, dict[str, Any]] = {}
    marked: set[str] = set()
    for revision, kind, resource, body in history:
        metadata = body["metadata"]
        if resource == "tfclusters":
            generations[metadata["uid"]] = metadata["generation"]
        elif resource == "configmaps" and metadata.get("namespace") == dialect.NAMESPACE:
            views.pop(metadata["name"], None)
            if kind != "DELETED" and (view := _view(body)):
                views[metadata["name"]] = view
                yield from (f"{metadata['name']} at revision {revision}: {one}" for one in _wrong(view))
        elif resource == "pods" and metadata["uid"] not in marked:
            if (metadata.get("annotations") or {}).get(_SURPLUS_SINCE) is None or "deletionTimestamp" in metadata:
                continue
            marked.add(metadata["uid"])
            job, index = metadata["labels"][dialect.LABEL_JOB], int(metadata["labels"][dialect.LABEL_INDEX])
            for name, view in views.items():
                newest = view["epoch"] == generations.get(view["cluster"]["uid"])
                if newest and not _names(view, job, index):
                    yield f"{name} does not say at revision {revision} that {job}-{index} leaves"


def _view(config_map: Mapping[str, Any]) -> dict[str, Any]:
    try:
        view = json.loads((config_map.get("data") or {}).get("cluster.json", ""))
    except ValueError:
        return {}
    return view if isinstance(view, dict) and "cluster" in view else {}


def _names(view: Mapping[str, Any], job: str, index: int) -> bool:
    return any(start <= index < stop for start, stop in view.get("leaving", {}).get(job, ()))


def _wrong(view: Mapping[str, Any]) -> Iterator[str]:
    for job in view.get("leaving", {}):
        tasks = view["jobs"].get(job, ())
        indices = map(int, tasks) if isinstance(tasks, dict) else range(len(tasks))
        yield from (f"{job}-{index} is declared and leaves" for index in indices if _names(view, job, index))
