"""The localnet's own user-facing error.

Separate from the subnet's: the localnet imports nothing from the rest of the package. The entry point prints it as
one line and exits 2.
"""

from __future__ import annotations


class LocalnetError(Exception):
    """A mistake of the user's, in one line that names the remedy."""
