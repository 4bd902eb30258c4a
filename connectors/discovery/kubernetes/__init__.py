"""Pods of a Kubernetes cluster as replicas: found by their labels, followed from session to session."""
