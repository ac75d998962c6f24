"""Objects whose owners queue, and pods that belong to other objects than their label says."""
