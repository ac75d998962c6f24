"""Benchmarks: each figure beside a ceiling that was measured on the same machine in the same run."""
