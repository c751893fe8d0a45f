"""What is written about runs: tables, figures and pages."""
