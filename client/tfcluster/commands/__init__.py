"""The commands: each reads its options, calls the client, and prints."""
