"""Decisions without a cluster: documents that describe objects and workloads, and an engine that decides."""
