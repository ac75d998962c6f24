"""Interfaces between a driver, the ledger, the cluster, and readers of the ledger; the errors they raise."""
