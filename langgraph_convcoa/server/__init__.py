"""The server behind `convcoa serve`: a page to talk to, the wire format of LangGraph's server, and MCP."""
