"""Typed columns: values of a topic decoded by the schema it is registered under."""
