"""Networks in one process, as the tests of roles have them; a disk that can be full."""

from tests.node.small_disk import disk
from tests.roles.conftest import base, build, spec, tasks

__all__ = ["base", "build", "disk", "spec", "tasks"]
