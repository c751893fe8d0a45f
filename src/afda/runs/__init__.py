"""A run's directory: its files, its model, evaluation, prediction and export."""
