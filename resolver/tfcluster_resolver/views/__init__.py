"""Sources of views: a mounted file, the API server, or what the caller gives."""
