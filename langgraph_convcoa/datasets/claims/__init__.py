"""Claims with evidence and a label, which language models wrote one by one for this library and labelled twice, blind."""
