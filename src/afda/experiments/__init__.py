"""The paper's experiments, the demonstration and the benchmark."""
