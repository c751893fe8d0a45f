"""The quality suite: test errors of `method="auto"` and of what a user would try instead, on many small data sets."""
