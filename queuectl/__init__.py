"""queuectl: admission and fair-share queue controller for GPU work on Kubernetes."""

__version__ = "0.1.0"
