"""A broker as one node of a cluster: the quorum that holds the metadata."""
