"""`python -m cli`: the same program as `intellect-node`."""

from cli.main import main

main()
