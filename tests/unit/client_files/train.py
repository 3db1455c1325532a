"""What a user's program may be."""

import time

time.sleep(0)
