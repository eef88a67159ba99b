"""The nodes of a turn, one file each; `langgraph_convcoa.graph` wires them."""
