"""A small Kubernetes API: sufficient for reflectors, adapters, injected faults and kubectl."""
