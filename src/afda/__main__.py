"""`python -m afda` is the command `afda`."""

from afda.cli import main

main()
