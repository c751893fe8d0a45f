"""The data sets known by name, one file each."""
