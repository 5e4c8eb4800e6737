"""Bytes on sockets to broker calls and back. Nothing here decides anything."""
