"""Recurring schedules at work: their calendars, the timer of their ticks, and publishing once."""
