"""What REST says, on a terminal: who has what, who waits and why, what was decided last."""
