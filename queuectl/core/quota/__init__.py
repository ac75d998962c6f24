"""Quota: the tree of ClusterQueues and Cohorts, dominant shares, and the limits of an admission."""
