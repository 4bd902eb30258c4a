"""What a shard held where its log begins, if retention has removed what came before."""
