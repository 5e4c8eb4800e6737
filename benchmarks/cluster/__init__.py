"""What a cluster of three nodes costs, beside one replica, one broker and Kafka."""
