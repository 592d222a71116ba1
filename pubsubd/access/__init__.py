"""Users, rules, tokens and identities: what may be done, and by whom."""
