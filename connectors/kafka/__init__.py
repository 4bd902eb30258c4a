"""What every client of Kafka needs, in connector and pipeline: addresses, security, names of topics."""
