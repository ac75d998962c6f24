"""A small Kubernetes API: sufficient for reflectors, adapters and kubectl."""
