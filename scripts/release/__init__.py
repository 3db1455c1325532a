"""Building and publishing of a release: ``python -m scripts.release``.

With the same commit and the same versions of the tools, every file is the same, bit for bit.
"""
