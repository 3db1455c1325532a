"""Bills of materials (CycloneDX): the distribution's requirements, and the image's content."""

import json
import os
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from scripts.images import ROOT
from scripts.release import tools

_LOCK: Final = ROOT / "requirements" / "operator.txt"


def of_distribution(path: Path, *, version: str, epoch: int) -> None:
    """Write the bill of the Python distribution: its extra ``operator`` at the versions that are tested and shipped."""
    options = ["--pyproject", ROOT / "pyproject.toml", "--mc-type", "library", "--output-reproducible"]
    bill = json.loads(tools.run_module("cyclonedx_py", ["requirements", *options, _LOCK], epoch=epoch))
    root = bill["metadata"]["component"]
    root |= {"version": version, "purl": f"pkg:pypi/{root['name']}@{version}"}
    for component in bill["components"]:
        # The text of the line in the file, which its hashes repeat.
        component.pop("description", None)
    for dependency in bill["dependencies"]:
        if dependency["ref"] == root["bom-ref"]:
            dependency["dependsOn"] = sorted(component["bom-ref"] for component in bill["components"])
    _write(path, bill)


def of_image(path: Path, layout: Path, *, image: str, version: str, epoch: int) -> None:
    """Write the bill of an image: its Debian and Python packages, as syft finds them."""
    command = [tools.syft(), "scan", f"oci-dir:{layout}", "--quiet", "--output", "cyclonedx-json"]
    command += ["--source-name", image, "--source-version", version]
    environment = {**os.environ, "SYFT_CHECK_FOR_APP_UPDATE": "false"}
    bill = json.loads(subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE).stdout)
    # A random number for each bill; its name and version are sufficient.
    del bill["serialNumber"]
    bill["metadata"]["timestamp"] = datetime.fromtimestamp(epoch, UTC).isoformat()
    _write(path, bill)


def _write(path: Path, bill: dict[str, Any]) -> None:
    path.write_text(json.dumps(bill, indent=1, sort_keys=True) + "\n", encoding="utf-8")
