"""Past usage of LocalQueues, which decays."""
