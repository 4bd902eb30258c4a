"""What the Helm chart gets from the code: the schema of its values, rules for Prometheus, boards."""
