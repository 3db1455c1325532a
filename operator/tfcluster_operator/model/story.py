"""What the steps of one plan have decided so far."""

from __future__ import annotations

from tfcluster_operator.model.actions import Action, Finding


class Story:
    """Actions, findings and times at which to look again; ``blocked`` keeps what follows from starting."""

    def __init__(self) -> None:
        self.actions: list[Action] = []
        self.findings: list[Finding] = []
        self.wake_after: list[float] = []
        self.blocked = False

    def wait(self, finding: Finding) -> None:
        """Note an obstacle that no action of ours removes."""
        self.findings.append(finding)
        self.blocked = True
