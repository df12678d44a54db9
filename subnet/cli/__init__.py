"""The `sn38` command: each subcommand is one module with `main(argv) -> exit code`."""
