"""`python -m detoklens` is the command line."""

from detoklens.cli.app import main

main()
