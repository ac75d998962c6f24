"""Pending workloads: their order, what is inadmissible, requeueing, usage history."""
