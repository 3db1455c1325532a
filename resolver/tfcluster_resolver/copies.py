"""Which copy of this package a Python takes: the newest one on its search path.

The operator delivers a copy into every pod, as a zip at the end of PYTHONPATH.  That is before the image's own
packages, so a copy that an image brings would never be seen, not even a newer one.  Therefore this file is in the zip
twice: as a module of the package, and as what Python finds first under the package's name.  There it looks for the
newest copy and becomes it, before the import ends.

It must load nothing slow, because it runs before the package, and nothing that Python 3.6 lacks, because it also
runs in an older Python than the package's, to say so: so its annotations are texts.
"""

import os
import re
import sys
from importlib.machinery import ModuleSpec, PathFinder
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    #: Sorts as the version does.
    Order = tuple[tuple[int, ...], tuple[int, int], int, float]

_PACKAGE = "tfcluster_resolver"
#: The folder of the zip with the copy that the operator delivers.
_BUNDLED = "bundled"
_SAYS_VERSION = re.compile(r"""^__version__\b[^=\n]*=\s*["']([^"']+)["']""", re.MULTILINE)
#: The public part of PEP 440 that a version of ours can have.
_VERSION = re.compile(
    r"(\d+(?:\.\d+)*)(?:(a|b|rc)(\d+))?(?:\.post(\d+))?(?:\.dev(\d+))?(?:\+[a-z0-9.]+)?", re.IGNORECASE
)

#: The Python that the package needs.
_PYTHON = (3, 10)


class Copy(NamedTuple):
    """One copy of the package: its file, its version, and how that one sorts."""

    file: str
    version: str
    order: "Order"
    spec: ModuleSpec


def copies(search_path: "Sequence[str]") -> "list[Copy]":
    """List the copies on the search path that have a version; a zip stands for the copy in it."""
    found: list[Copy] = []
    seen = set()
    for entry in search_path:
        # At the top of the operator's zip is this file, without a version: look further in the zip.
        for place in (entry, os.path.join(entry, _BUNDLED)):  # noqa: PTH118 - pathlib is slow to import, and this runs first
            spec = PathFinder.find_spec(_PACKAGE, [place])
            if spec is None or spec.loader is None or spec.origin is None or spec.origin in seen:
                break
            seen.add(spec.origin)
            version = _version_of(spec)
            order = order_of(version)
            if order is not None:
                found.append(Copy(spec.origin, version, order, spec))
                break
    return found


def newest(found: "Sequence[Copy]") -> "Copy | None":
    return max(found, key=lambda one: one.order, default=None)


def order_of(version: str) -> "Order | None":
    """Return the key to sort a version by (PEP 440); None if the text is not a version that ours can have."""
    parts = _VERSION.fullmatch(version.strip())
    if parts is None:
        return None
    release = tuple(int(number) for number in parts[1].split("."))
    while release and release[-1] == 0:
        release = release[:-1]
    stage = (("a", "b", "rc").index(parts[2].lower()), int(parts[3])) if parts[2] else (3, 0)
    post = -1 if parts[4] is None else int(parts[4])
    if parts[5] is not None and not parts[2] and post < 0:
        stage = (-1, 0)  # 1.0.dev1 is before 1.0a1
    return release, stage, post, float("inf") if parts[5] is None else float(parts[5])


def _version_of(spec: ModuleSpec) -> str:
    """Read a copy's version without running it: its distribution's metadata can be that of another copy."""
    try:
        source: str | None = spec.loader.get_source(_PACKAGE)  # type: ignore[union-attr]  # each loader of a path has it
    except (ImportError, OSError, SyntaxError, UnicodeError, AttributeError):
        return ""
    said = _SAYS_VERSION.search(source or "")
    return said[1] if said is not None else ""


def _become_newest(module: "dict[str, Any]") -> None:
    """Turn the module that is being imported into the newest copy of the package."""
    if sys.version_info < _PYTHON:
        raise ImportError(
            f"{_PACKAGE} needs Python {_PYTHON[0]}.{_PYTHON[1]} or newer, and {sys.executable} is "
            f"{sys.version_info[0]}.{sys.version_info[1]}: use an image with a newer one",
            name=_PACKAGE,
        )
    found = newest(copies(sys.path))
    if found is None:
        raise ImportError(f"{module['__file__']} is not a whole copy of {_PACKAGE}", name=_PACKAGE)
    spec = found.spec
    module["__path__"] = spec.submodule_search_locations
    module["__file__"] = spec.origin
    module["__cached__"] = spec.cached
    module["__loader__"] = spec.loader
    code = spec.loader.get_code(_PACKAGE)  # type: ignore[union-attr]  # likewise
    for name in [name for name in module if not name.startswith("__") or name == "__annotations__"]:
        del module[name]
    # In place, and the specification last: it keeps other threads from a half-made module.
    exec(code, module)  # noqa: S102 - the code of the package that the user asked for
    module["__spec__"] = spec


if __name__ == _PACKAGE:
    _become_newest(globals())
