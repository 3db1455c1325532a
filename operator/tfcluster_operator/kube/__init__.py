"""Everything that talks to the API server: the only package that imports aiohttp."""
