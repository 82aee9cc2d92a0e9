"""Looking inside: traces, timings, numeric checks, file inspection."""
