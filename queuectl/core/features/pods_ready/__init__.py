"""When the pods of a workload must be ready."""
