"""The REST API: answers from one committed state of the ledger, and writes of Kubernetes objects."""
