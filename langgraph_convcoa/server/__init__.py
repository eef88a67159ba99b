"""The server behind `convcoa serve`: a web page for questions, the wire format of LangGraph's server, and MCP."""

UPLOAD_BYTES = 100_000_000
"""Maximum number of bytes of an upload request (--max-upload-mb). It is defined here because this module imports nothing."""
