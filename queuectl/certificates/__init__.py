"""Certificates of our servers: checked before they are used, renewed by themselves, swapped in place."""
