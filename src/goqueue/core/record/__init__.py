"""Messages as bytes: frames, Arrow batches, rows and their headers."""
