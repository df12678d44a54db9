"""Errors a person can act on.

Not for bugs (those keep their traceback) nor for bad input from peers (each layer that
reads from strangers has its own exception and counts it against the sender).
"""


class UserError(Exception):
    """A mistake the user can fix: one clear line saying what is wrong, why, and the remedy.

    Every entry point prints it as `error: <message>` and exits with status 2, without a traceback.
    """


class ConfigError(UserError, ValueError):
    """A configuration that is unreadable, incomplete or contradictory; the message names the file and the field."""
