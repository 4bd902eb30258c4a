"""The agents of a worker: what each reads, keeps and writes."""
