"""Who may do what: principals, access lists and tokens; SASL mechanisms; TLS."""
