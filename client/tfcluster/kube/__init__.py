"""The API server as the client uses it: credentials, requests, watches, and programs run in pods."""
