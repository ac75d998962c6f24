"""Speed, each figure beside what this machine could do at best in the same run."""
