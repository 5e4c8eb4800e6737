"""The port between the nodes of a cluster."""
