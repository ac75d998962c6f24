"""Observe mode: a cluster without a gate, shown to the engine as if the gate were in force."""
