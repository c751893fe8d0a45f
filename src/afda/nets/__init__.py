"""The networks, one file each; a new file is a new net."""
