"""How verifiers agree with people's ratings of whole answers."""
