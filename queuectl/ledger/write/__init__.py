"""Plans of the engine as rows of Postgres."""
