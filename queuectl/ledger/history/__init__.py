"""What rows of history say: replay, past states, past usage."""
