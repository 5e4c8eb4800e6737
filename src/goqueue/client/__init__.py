"""The SDK: asynchronous at heart, with a synchronous face."""
