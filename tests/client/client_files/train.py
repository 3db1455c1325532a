"""A user's program."""

import time

time.sleep(0)
