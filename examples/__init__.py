"""Programs that show GoQueue at work, written with nothing but what every user has."""
