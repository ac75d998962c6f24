"""Values: what is asked for, what is recorded, what happens, and the rules of admins. Immutable."""
