"""The native protocol's server."""
