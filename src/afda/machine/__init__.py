"""The machine: device, precision, files, several processes, and clusters."""
