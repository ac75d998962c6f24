"""Changes of Kubernetes objects with the rights of the user: the same for CLI, REST and web page."""
