"""The commands: each reads its options, calls the client, and prints; one file each, in its ``command``."""
