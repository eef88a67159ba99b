"""Speed and cost on this machine."""
