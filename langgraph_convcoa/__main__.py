"""`python -m langgraph_convcoa` is the `convcoa` command."""

from langgraph_convcoa.cli.app import main

if __name__ == "__main__":
    main()
