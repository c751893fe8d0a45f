"""The HTML report about finished runs: its content, and how the page is drawn."""
