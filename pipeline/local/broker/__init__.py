"""Apache Kafka in one JVM subprocess."""
