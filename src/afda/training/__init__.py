"""Training: Algorithm 1, the state it works on, and a run from its first update to its result."""
