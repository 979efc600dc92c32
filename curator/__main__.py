"""`python -m curator` is the command line."""

from curator.cli.main import program

program()
