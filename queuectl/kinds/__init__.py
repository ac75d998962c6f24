"""From Kubernetes objects, as raw JSON, to values of the core, and back. Pure."""
