"""The part that decides. Pure: no await, clock, log, randomness, ORM or pydantic.

Whole objects go in as events, a Plan of decisions comes out, each with its reason.
"""
