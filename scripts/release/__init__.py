"""What a release is made of, and how it is published: ``python -m scripts.release``.

From the same commit, with the same versions of the tools, every file is the same, bit for bit.
"""
