"""The connector behind ``format("goqueue")``."""
