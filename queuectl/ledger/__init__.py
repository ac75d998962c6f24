"""The ledger: decisions, holds and effects as rows of Postgres, and a twin of it in memory."""
