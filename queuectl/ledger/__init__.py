"""The ledger: decisions, holds and effects as rows of Postgres, and an equivalent in memory."""
