"""A cluster's metadata: its nodes, topics, partitions and their replicas, and who leads them."""
