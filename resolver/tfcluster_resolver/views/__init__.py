"""Where a view comes from: a mounted file, the API server, or what the caller gives."""
