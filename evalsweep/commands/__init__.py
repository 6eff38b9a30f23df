"""The commands: a word in place of overrides. Each is one file with `run(argv) -> exit code`."""
