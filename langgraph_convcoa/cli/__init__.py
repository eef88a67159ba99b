"""The `convcoa` command. Commands that belong together share a file."""
