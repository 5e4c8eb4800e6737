"""The brokers that are measured, each with its usual Python client at its best settings."""
