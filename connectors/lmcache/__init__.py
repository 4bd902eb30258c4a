"""What LMCache's servers report of their caches, over Kafka or HTTP, as sources of their own."""
