"""When delayed messages are due: the wheel of their times, and what was changed of them."""
