"""The exit codes of ``tfcluster``, for scripts."""

from __future__ import annotations

from typing import Final

#: All went well.
OK: Final = 0
#: What was asked does not hold, or something differs, or it was refused: the message says what to do.
FAILED: Final = 1
#: The command line is wrong; click's own code.
USAGE: Final = 2
#: ``diff``: something differs; as ``kubectl diff`` has it.
DIFFERS: Final = 1
#: ``diff``: it could not be found out; likewise.
NOT_COMPARED: Final = 2
#: ``convert``: the result is complete but for what the report names.
LOSSY: Final = 3
#: It took longer than ``--timeout``; as ``timeout(1)`` has it.
TIMED_OUT: Final = 124
#: The user pressed Ctrl-C; as shells have it.
INTERRUPTED: Final = 130
