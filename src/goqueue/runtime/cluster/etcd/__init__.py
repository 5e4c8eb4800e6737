"""The cluster's order of entries kept in an etcd that is already run: the second ``Consensus``."""
