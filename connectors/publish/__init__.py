"""Records out to Kafka."""
