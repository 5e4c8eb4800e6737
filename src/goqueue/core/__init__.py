"""The broker without a broker: pure, synchronous, deterministic state machines.

Nothing here reads a clock, a file, a socket or a random number. Time arrives as an argument.
Outcomes leave as values. See STYLE.md, "The four shapes".
"""
