"""Quota: the tree of ClusterQueues and Cohorts, dominant shares, what limits an admission."""
