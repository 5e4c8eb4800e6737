"""Transactions: many messages and settlements, all or nothing."""
