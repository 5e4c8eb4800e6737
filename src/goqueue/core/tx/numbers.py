"""The numbers of transactions: 63 bits that nobody else ever had, each one leading to the next.

Shape: calculator. The first number of a producer's life is random. The next one follows from it,
so a producer knows it without asking, and the broker knows it after a restart; whoever comes with
any other number is late.
"""

from typing import Final

_MASK: Final = 2**64 - 1


def number_after(number: int) -> int:
    """Return the number of the transaction that follows one (the mixing of splitmix64)."""
    mixed = (number + 0x9E37_79B9_7F4A_7C15) & _MASK
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58_476D_1CE4_E5B9) & _MASK
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D0_49BB_1331_11EB) & _MASK
    return ((mixed ^ (mixed >> 31)) >> 1) | 1
