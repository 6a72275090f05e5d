"""Networks in one process, as the tests of roles have them."""

from tests.roles.conftest import base, build, spec, tasks

__all__ = ["base", "build", "spec", "tasks"]
