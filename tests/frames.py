"""Frames one by one."""

from collections.abc import Iterator

from goqueue.core.record.frame import FrameHeader, read_header, verify


def split_frames(buffer: memoryview) -> Iterator[tuple[FrameHeader, memoryview]]:
    """Yield every frame of a buffer of whole frames, each with its checksum checked."""
    position = 0
    while position < len(buffer):
        header = read_header(buffer, position)
        frame = buffer[position : position + header.size]
        verify(frame, header)
        yield header, frame
        position += header.size
