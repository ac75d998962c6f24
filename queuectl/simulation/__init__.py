"""Weeks of workloads in virtual time: the cluster is played, all decisions are those of the engine. Pure."""
