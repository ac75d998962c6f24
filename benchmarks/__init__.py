"""Speed of the decision core, as ratios within one run."""
