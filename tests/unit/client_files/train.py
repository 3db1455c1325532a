"""What a user's program may be."""

print("trained")
