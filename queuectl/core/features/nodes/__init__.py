"""Room on nodes: whether pods that do not exist yet fit on the nodes of the cluster (M)."""
