"""The `convcoa` command: one command a file."""
