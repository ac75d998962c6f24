"""What people and programs read over HTTP: one committed state of the ledger, never more than that."""
