"""This program's loggers as they were: for tests of what sets them up for a process of its own."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from node.log import LIBRARIES, LOGGER


@contextmanager
def restored() -> Iterator[None]:
    loggers = [LOGGER, logging.getLogger(), *map(logging.getLogger, LIBRARIES)]
    kept = [(logger.handlers, logger.level, logger.propagate) for logger in loggers]
    try:
        yield
    finally:
        logging.captureWarnings(False)
        for logger, (handlers, level, propagate) in zip(loggers, kept, strict=True):
            logger.handlers, logger.propagate = handlers, propagate
            logger.setLevel(level)
