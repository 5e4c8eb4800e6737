"""Receipts read in one go are those that are read one by one."""

from hypothesis import given
from hypothesis import strategies as st

from goqueue.base.errors import InvalidReceiptError
from goqueue.service.claims import Claims, Terms

TERMS = Terms()
receipts = st.builds(
    "{}:{}:{}{}:{}:{:016x}".format,
    st.sampled_from(["orders", "o"]),
    st.integers(0, 1),
    st.sampled_from(["", "", "", "0", "\n", "٣"]),
    st.integers(0, 4),
    st.integers(1, 2),
    st.integers(0, 1),
)
runs = st.builds(
    lambda first, count: [f"orders:1:{first + row}:1:{7:016x}" for row in range(count)],
    st.integers(0, 10**18),
    st.integers(1, 12),
)


def gathered(texts: list[str], *, in_one_go: bool) -> object:
    """Return what was read, or the refusal."""
    claims = Claims("receipts")
    try:
        if in_one_go:
            claims.gather_alike(texts, TERMS)
        else:
            claims.gather(texts, [TERMS] * len(texts))
    except InvalidReceiptError as error:
        return error.message
    found = {key: (receipt, places) for key, (receipt, places) in claims._bundles.items()}  # noqa: SLF001
    return found, [(one.place, one.error.message) for one in claims._misfits]  # noqa: SLF001


@given(runs | st.lists(receipts, min_size=1, max_size=6), st.booleans())
def test_in_one_go_or_one_by_one(texts: list[str], joins: bool) -> None:  # noqa: FBT001
    """The same leases, places, doubles and refusals; a line break makes no receipt of two."""
    if joins and len(texts) > 1:
        texts = ["\n".join(texts[:2]), *texts[2:]]

    assert gathered(texts, in_one_go=True) == gathered(texts, in_one_go=False)
