"""Values and decisions.  Nothing here does I/O, reads a clock, logs, or knows kopf: every input is an argument."""
