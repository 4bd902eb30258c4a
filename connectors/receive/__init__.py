"""Messages of engines in, from ZMQ sockets to bundles in memory."""
