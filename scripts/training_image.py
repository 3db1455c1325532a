"""The image that the examples train in, built and loaded into the cluster of `make cluster`."""

import sys

from scripts import images

if __name__ == "__main__":
    images.load(images.TRAINING)
    sys.exit(0)
