"""Engine side: ZMQ event streams in, normalised runs of batches out to Kafka."""
