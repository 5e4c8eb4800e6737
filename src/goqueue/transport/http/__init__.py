"""The HTTP API: JSON in and out, translated into the broker's few calls."""
