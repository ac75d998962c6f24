"""Preemption: which workloads are evicted for which, and what preemptors claim."""
