"""Malformed input where bytes come in: `python -m tests.fuzz`.

Each target reads real examples that are changed at random. A violation is an exception that its reader does
not declare, an answer without a reason, or more CPU than the target's bound for one input.
"""
