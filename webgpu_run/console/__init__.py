"""The terminal: output streams, progress bars, Ctrl-C, exit codes, and files written completely or not at all."""
