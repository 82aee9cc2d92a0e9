"""What talks to the person at the terminal: output, progress, interrupts, files written whole."""
