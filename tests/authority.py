"""A private authority for tests, and files of certificates that it vouches for."""

from pathlib import Path

from goqueue.storage.certificates import Issued, make_authority, make_certificate


class Authority:
    """Makes certificates into a directory of its own."""

    def __init__(self, folder: Path, name: str = "an authority of tests") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.issued = make_authority(name)
        self.ca = folder / "ca.pem"
        self.issued.write(self.ca, folder / "ca-key.pem")

    def issue(self, *names: str, file: str = "server", days: int = 30) -> tuple[Path, Path]:
        """Write a certificate for names; return its file and that of its key."""
        made: Issued = make_certificate(names or LOCAL, authority=self.issued, days=days)
        cert, key = self.folder / f"{file}.pem", self.folder / f"{file}-key.pem"
        made.write(cert, key)
        return cert, key


LOCAL = ("localhost", "127.0.0.1")
