"""The demonstration: a shop's orders through a broker, a consumer group and a Spark pipeline."""
