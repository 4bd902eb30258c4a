"""What a simulated engine publishes, byte by byte; shares nothing with the connector."""
