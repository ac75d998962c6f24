"""What Kubernetes objects mean to queuectl: raw JSON in, values of the core out, and back. Pure."""
