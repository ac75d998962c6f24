"""What a release consists of, made from the sources."""
