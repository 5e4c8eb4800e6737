"""Settings shared by all tests."""

from hypothesis import settings

# A busy machine must not fail a property: time limits belong to benchmarks.
settings.register_profile("goqueue", deadline=None, print_blob=True)
settings.load_profile("goqueue")
