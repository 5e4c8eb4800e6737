"""Who may do what: API keys, roles, access rules, and decisions that can be explained."""
