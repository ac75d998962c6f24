"""Reading the ledger: states, history, and the outbox of notifications."""
