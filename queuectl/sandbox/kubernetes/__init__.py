"""A small Kubernetes API: what reflectors, adapters, faults and a person with kubectl need, and no more."""
