"""When waiting workloads start: copies of the engine run forward on virtual time. Pure."""
