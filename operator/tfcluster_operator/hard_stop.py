"""An end of the process at a set time, by the kernel: it holds also for a process that is stopped and woken later.

Between a look at the clock and the bytes that leave lie some instructions of ours and, in uvloop, the rest of a turn of
the loop.  A process that is stopped right there would send its write when it wakes, minutes later.  A pending signal is
delivered before anything else runs, so such a process ends instead.
"""

from __future__ import annotations

import ctypes
import signal


def install() -> None:
    """Let SIGALRM end the process, with its number, 14, as the exit status.

    NB: neither the default action nor a handler in Python would do.  The kernel spares the first process of a container
    from default actions, and Python runs its handlers only when the C code under way has returned.
    """
    libc = ctypes.CDLL(None)
    libc.signal.argtypes = (ctypes.c_int, ctypes.c_void_p)
    libc.signal.restype = ctypes.c_void_p
    libc.signal(signal.SIGALRM, ctypes.cast(libc._exit, ctypes.c_void_p))  # noqa: SLF001 - the name of the C function


def arm(seconds: float) -> None:
    """Set the end, in place of the one that was set before; 0 takes it back.

    Args:
        seconds: from now on.
    """
    signal.setitimer(signal.ITIMER_REAL, seconds)
