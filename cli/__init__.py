"""The command line: parse, compose, print. No logic."""
