"""`sn38 COMMAND [flags]`: hand the flags to the command's own module, imported only when it is asked for."""

from __future__ import annotations

import importlib
import sys

from subnet.errors import UserError

COMMANDS = {
    "demo": ("subnet.cli.demo", "a whole swarm on this machine: chain, miners, validators, one model"),
    "localnet": ("subnet.localnet.__main__", "the embedded development chain"),
    "miner": ("subnet.cli.miner", "train and be paid for it"),
    "validator": ("subnet.cli.validator", "score contributions and set weights"),
    "tokenize": ("subnet.cli.tokenize", "text into the token shards that a run trains on"),
    "attack": ("subnet.cli.attack", "attacks on a swarm: what they take, how soon they are found, what they break"),
    "emissions": ("subnet.chain.emissions", "what each hotkey of a subnet earned"),
}


def usage() -> str:
    """The list of commands, one a line."""
    lines = ["usage: sn38 COMMAND [flags]   (sn38 COMMAND --help for its flags)", ""]
    lines += [f"  {name:<10} {what}" for name, (_, what) in COMMANDS.items()]
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    """Run a command; 0 on success, 2 with one line on stderr for what the user can mend."""
    argv = sys.argv[1:] if argv is None else argv
    if not argv or argv[0] in ("-h", "--help"):
        print(usage())
        return 0
    if argv[0] not in COMMANDS:
        print(f"error: no command {argv[0]!r}\n\n{usage()}", file=sys.stderr)
        return 2
    try:
        command = importlib.import_module(COMMANDS[argv[0]][0])
        return int(command.main(argv[1:]))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        # Before the command has its own answer to it: while it is imported or reads its flags.
        return 130


if __name__ == "__main__":
    sys.exit(main())
