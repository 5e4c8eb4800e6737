"""Traces: ids, the W3C header, which messages are sampled, and the story of one message."""
