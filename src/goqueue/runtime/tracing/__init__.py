"""Tracing at work: notes of what happens to messages, and questions about them."""
