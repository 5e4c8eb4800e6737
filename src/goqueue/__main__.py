"""``python -m goqueue``."""

from goqueue.cli.main import main

main()
