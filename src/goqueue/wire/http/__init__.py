"""What is said over HTTP: the JSON of requests and replies, and the meaning of errors."""
