"""What a shard held where its log begins, if that is not where everything began."""
