"""The asynchronous shell: tasks, timers, threads and the one real clock."""
