"""For all tests: programs that they start hear Ctrl-C, also where the tests were started in a shell's background."""

import signal

signal.signal(signal.SIGINT, signal.default_int_handler)  # what is ignored here is ignored by every child
