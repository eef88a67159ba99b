"""The server behind `convcoa serve`: a page to talk to, the wire format of LangGraph's server, and MCP."""

UPLOAD_BYTES = 100_000_000
"""Most bytes of an upload request, unless --max-upload-mb is given. Defined here because this module imports nothing."""
