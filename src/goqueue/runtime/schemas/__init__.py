"""The schema registry at work, and the check of messages on their way into a log."""
