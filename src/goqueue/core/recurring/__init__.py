"""Recurring schedules: what is published, when it ticks, and which ticks were missed."""
