"""Scenario documents: objects, workloads, and the decisions expected for them. Pure."""
