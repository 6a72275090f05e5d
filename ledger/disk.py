"""What an operating system says when it refuses a path, as a part of one line."""

import errno
from typing import Final

DISK_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})  # also a quota, and a limit of the process
A_FILE = "a file stands where a folder has to be"
WORDS = {errno.ENOTDIR: A_FILE, errno.EEXIST: A_FILE}  # the latter is what making a folder over a file comes to


def refusal(error: OSError | ValueError) -> str:
    """Why, without number and path. A ValueError is a null byte in the path."""
    said = getattr(error, "strerror", None) or str(error)
    return WORDS.get(error.errno, said) if isinstance(error, OSError) and error.errno else said
