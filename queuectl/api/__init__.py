"""The read-only REST API: every answer comes from one committed state of the ledger."""
