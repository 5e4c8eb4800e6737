"""Administration: topics, groups, schemas, dead letters, traces, transactions."""
