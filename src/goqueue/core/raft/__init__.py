"""The quorum that holds a cluster's metadata: Raft as a stepper.

``Raft`` (``raft.py``) is given messages and ticks and returns ``Effects``: what to persist, send
and apply. ``runtime/cluster/quorum.py`` carries them out.
"""
