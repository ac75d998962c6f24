"""Migration, verification, rebuilding and retention of the ledger."""
